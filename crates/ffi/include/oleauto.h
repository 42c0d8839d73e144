/* oleauto.h: strings with a length (BSTR), and variants. A string is a WCHAR array with a NUL; the
 * four bytes before it are its length in bytes. */
#ifndef TRACEWEIR_OLEAUTO_H
#define TRACEWEIR_OLEAUTO_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows.h"

#ifndef TRACEWEIR_NO_WIN32_CALLS

typedef WCHAR *BSTR;
typedef unsigned short VARTYPE;
typedef short VARIANT_BOOL;
#define VARIANT_TRUE ((VARIANT_BOOL)-1)
#define VARIANT_FALSE ((VARIANT_BOOL)0)

enum VARENUM {
    VT_EMPTY = 0,
    VT_NULL = 1,
    VT_I2 = 2,
    VT_I4 = 3,
    VT_R4 = 4,
    VT_R8 = 5,
    VT_BSTR = 8,
    VT_BOOL = 11,
    VT_I1 = 16,
    VT_UI1 = 17,
    VT_UI2 = 18,
    VT_UI4 = 19,
    VT_I8 = 20,
    VT_UI8 = 21,
    VT_INT = 22,
    VT_UINT = 23
};

typedef struct tagVARIANT {
    VARTYPE vt;
    WORD wReserved1;
    WORD wReserved2;
    WORD wReserved3;
    __extension__ union {
        LONGLONG llVal;
        LONG lVal;
        BYTE bVal;
        SHORT iVal;
        FLOAT fltVal;
        double dblVal;
        VARIANT_BOOL boolVal;
        BSTR bstrVal;
        CHAR cVal;
        USHORT uiVal;
        ULONG ulVal;
        ULONGLONG ullVal;
        INT intVal;
        UINT uintVal;
        PVOID byref;
        PVOID record[2];
    };
} VARIANT, *LPVARIANT;

#define DISP_E_BADVARTYPE ((HRESULT)0x80020008u)

#ifdef __cplusplus
extern "C" {
#endif

BSTR WINAPI SysAllocString(_In_opt_ const WCHAR *psz);
BSTR WINAPI SysAllocStringLen(_In_opt_ const WCHAR *strIn, UINT ui);
void WINAPI SysFreeString(_In_opt_ BSTR bstrString);
UINT WINAPI SysStringLen(_In_opt_ BSTR pbstr);
UINT WINAPI SysStringByteLen(_In_opt_ BSTR bstr);
void WINAPI VariantInit(_Out_ VARIANT *pvarg);
/* Returns DISP_E_BADVARTYPE for objects and arrays, which do not exist here. */
HRESULT WINAPI VariantClear(_Inout_ VARIANT *pvarg);

#ifdef __cplusplus
}
#endif
#endif

#endif /* TRACEWEIR_OLEAUTO_H */
