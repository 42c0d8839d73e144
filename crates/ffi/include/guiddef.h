/* GUIDs.
 *
 * DEFINE_GUID(name, ...) declares a constant of another source file. If INITGUID is defined
 * (initguid.h does that), it also defines the constant. Any number of files may define the same
 * one: the linker keeps one. As on Windows, the macro follows INITGUID each time this header is
 * included.
 */
#ifndef GUID_DEFINED
#define GUID_DEFINED

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <stdint.h>
#include <string.h>

typedef struct _GUID {
    uint32_t Data1;
    uint16_t Data2;
    uint16_t Data3;
    uint8_t Data4[8];
} GUID;

typedef GUID *LPGUID;
typedef const GUID *LPCGUID;
typedef GUID IID;
typedef GUID CLSID;

#ifdef __cplusplus
#define REFGUID const GUID &
static inline int InlineIsEqualGUID(REFGUID a, REFGUID b) { return memcmp(&a, &b, sizeof(GUID)) == 0; }
static inline int IsEqualGUID(REFGUID a, REFGUID b) { return memcmp(&a, &b, sizeof(GUID)) == 0; }
static inline bool operator==(REFGUID a, REFGUID b) { return memcmp(&a, &b, sizeof(GUID)) == 0; }
static inline bool operator!=(REFGUID a, REFGUID b) { return memcmp(&a, &b, sizeof(GUID)) != 0; }
#else
#define REFGUID const GUID *
#define InlineIsEqualGUID(a, b) (memcmp((a), (b), sizeof(GUID)) == 0)
#define IsEqualGUID(a, b) (memcmp((a), (b), sizeof(GUID)) == 0)
#endif

#ifdef __cplusplus
#define TRACEWEIR_EXTERN_GUID(name) extern "C" const GUID name
#else
#define TRACEWEIR_EXTERN_GUID(name) extern const GUID name
#endif

#endif /* GUID_DEFINED */

#undef DEFINE_GUID
#ifdef INITGUID
/* Declared first, so that the definition has C linkage in a namespace too, and so that nothing is
 * both "extern" and initialized. */
#define DEFINE_GUID(name, l, w1, w2, b1, b2, b3, b4, b5, b6, b7, b8)    \
    TRACEWEIR_EXTERN_GUID(name) __attribute__((weak));                  \
    const GUID name = {l, w1, w2, {b1, b2, b3, b4, b5, b6, b7, b8}}
#else
#define DEFINE_GUID(name, l, w1, w2, b1, b2, b3, b4, b5, b6, b7, b8) TRACEWEIR_EXTERN_GUID(name)
#endif
