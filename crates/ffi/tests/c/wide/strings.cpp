// C++ strings and streams over a wchar_t of 16 bits. Compiled with TRACEWEIR_SAL1.
#include <windows.h>

#include <algorithm>
#include <codecvt>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
#if __cplusplus >= 201703L
#include <string_view>
#endif

static int rows, failures;

#define EXPECT(condition)                                                          \
    do {                                                                           \
        rows++;                                                                    \
        if (!(condition)) {                                                        \
            failures++;                                                            \
            std::cerr << __FILE__ << ":" << __LINE__ << ": " << #condition << "\n"; \
        }                                                                          \
    } while (0)

// Old annotations, as in sources for Windows.
static int sum(__in const int *numbers, __in_opt const int *other, __out_bcount(4) int *result) {
    *result = *numbers + (other ? *other : 0);
    return *result;
}

// A constructor that runs before main uses the streams, too.
static const std::wstring early = [] {
    std::wostringstream text;
    text << L"early " << 1;
    return text.str();
}();

static void check_strings() {
    std::wstring text = L"provider";
    EXPECT(sizeof(text[0]) == 2 && text.size() == 8 && text == L"provider" && text != L"providers");
    text += L"-name that is longer than the buffer inside of the string";
    EXPECT(text.find(L"that") == 14 && text.rfind(L't') == 60 && text.find_first_of(L"-") == 8);
    EXPECT(text.substr(9, 4) == L"name" && text.compare(0, 8, L"provider") == 0);
    text.replace(0, 8, L"session").insert(0, 3, L'*').erase(3, 7);
    EXPECT(text.compare(0, 8, L"***-name") == 0);
    EXPECT(std::wstring(5, L'x') + L"y" + std::wstring(L"z") == L"xxxxxyz" && L"a" + std::wstring(1, L'b') == L"ab");
    EXPECT(std::to_wstring(-42) == L"-42" && std::to_wstring(~0ULL) == L"18446744073709551615");
    EXPECT(std::to_wstring(static_cast<size_t>(1) << 40) == L"1099511627776" && std::to_wstring(2.5) == L"2.500000");
    EXPECT(std::stoi(std::wstring(L"12x")) == 12 && std::stoull(std::wstring(L"0x10"), nullptr, 16) == 16);
    EXPECT(std::stod(std::wstring(L"1.5")) == 1.5);
    std::map<std::wstring, int> ordered = {{L"b", 2}, {L"a", 1}};
    std::unordered_map<std::wstring, int> hashed = {{L"b", 2}, {L"a", 1}};
    EXPECT(ordered.begin()->first == L"a" && hashed[L"b"] == 2);
    std::transform(text.begin(), text.end(), text.begin(), towupper);
    EXPECT(text.find(L"NAME") == 4);
    LPCWSTR pointer = text.c_str();
    EXPECT(wcslen(pointer) == text.size());
    wchar_t array[8];
    EXPECT(wcscpy_s(array, L"array") == 0 && swprintf_s(array, L"%s%d", L"n", 7) == 2 && array == std::wstring(L"n7"));
    std::wstring_convert<std::codecvt_utf8_utf16<wchar_t>> converter;
    EXPECT(converter.to_bytes(L"ä\xD83D\xDE00") == "\xC3\xA4\xF0\x9F\x98\x80" && converter.from_bytes("\xC3\xA4") == L"ä");
    std::basic_string<WCHAR> other(L"\xD83D\xDE00");
    EXPECT(other.size() == 2);
#if __cplusplus >= 201703L
    std::wstring_view view = text;
    EXPECT(view.substr(4, 4) == L"NAME" && view.find(L'N') == 4);
#endif
}

static void check_string_streams() {
    std::wostringstream text;
    text << L"id=" << 7 << L' ' << std::hex << std::showbase << 255 << std::dec << L" " << 1234567890123ULL << " narrow " << true
         << std::boolalpha << L" " << false << L" " << std::setw(6) << std::setfill(L'0') << 42 << L" " << 2.5 << L" " << -1LL;
    EXPECT(text.str() == L"id=7 0xff 1234567890123 narrow 1 false 000042 2.5 -1");
    std::wstringstream both(L"12 word 3.5 0x1f\nsecond line\nthird");
    int number = 0, hex = 0;
    double real = 0;
    std::wstring word, line;
    both >> number >> word >> real >> std::hex >> hex;
    EXPECT(number == 12 && word == L"word" && real == 3.5 && hex == 31);
    both.ignore(10, L'\n');
    EXPECT(std::getline(both, line) && line == L"second line");
    wchar_t buffer[16];
    EXPECT(both.getline(buffer, 16) && std::wstring(buffer) == L"third" && !std::getline(both, line));
    std::wostringstream copy;
    copy << std::wstringstream(L"copied").rdbuf();
    EXPECT(copy.str() == L"copied" && early == L"early 1");
    std::tm time = {};
    time.tm_year = 124, time.tm_mday = 31, time.tm_mon = 11, time.tm_hour = 23;
    std::wostringstream date;
    date << std::put_time(&time, L"%Y-%m-%d %H:%M");
    EXPECT(date.str() == L"2024-12-31 23:00");
    // Another locale changes nothing that would break a stream.
    std::wostringstream imbued;
    imbued.imbue(std::locale::classic());
    imbued << 1000000 << L" " << 0.5;
    EXPECT(imbued.str() == L"1000000 0.5");
    EXPECT(std::isdigit(L'5', std::locale()) && std::toupper(L'a', std::locale()) == L'A');
}

static void check_file_streams(const std::string &folder) {
    const std::string path = folder + "/text";
    {
        std::wofstream file(path);
        file << L"größe " << 42 << std::endl << L"\xD83D\xDE00" << L"\n";
        EXPECT(file.good());
    }
    std::ifstream bytes(path);
    std::string narrow;
    EXPECT(std::getline(bytes, narrow) && narrow == "gr\xC3\xB6\xC3\x9F"
                                                    "e 42");
    std::wifstream file(path);
    std::wstring word, line;
    int number = 0;
    EXPECT(file >> word >> number && word == L"größe" && number == 42);
    EXPECT(std::getline(file, line) && line.empty() && std::getline(file, line) && line == L"\xD83D\xDE00");
}

int wmain(int count, wchar_t *arguments[]) {
    EXPECT(count == 2);
    int two = 2, result;
    EXPECT(sum(&two, nullptr, &result) == 2);
    check_strings();
    check_string_streams();
    const std::wstring folder = arguments[1];
    check_file_streams(std::string(folder.begin(), folder.end()));
    std::wcout << L"größe " << std::hex << std::uppercase << 48879 << std::dec << L" " << std::wstring(L"\xD83D\xDE00") << std::endl;
    std::wcout << L"\xD83D";
    std::wcout << L"\xDE00" << L'\n';
    wprintf(L"%s\n", L"printed");
    std::cout << "narrow" << std::endl;
    std::wcerr << L"error\n";
    std::wstring line;
    int number = 0;
    EXPECT(std::wcin >> number && number == 17 && std::getline(std::wcin, line) && line == L" zeilenende ä");
    std::wcout << L"rows: " << rows << std::endl;
    return failures != 0;
}
