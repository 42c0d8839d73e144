/* GUIDs.
 *
 * DEFINE_GUID(name, ...) declares a constant of another source file. If INITGUID is defined
 * (initguid.h does that), the macro also defines the constant. Any number of files may define the
 * same constant: the linker keeps one definition. As on Windows, the macro follows INITGUID each
 * time this header is included.
 */
#ifndef GUID_DEFINED
#define GUID_DEFINED

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C++" {
#if __SIZEOF_LONG__ == 8
/* On Windows, uint64_t is the type of handles and keywords. Here handles are "unsigned long long"
 * and uint64_t is "unsigned long", another type of the same size. Friends of the structures
 * overload the functions that fill a handle, so that they accept uint64_t, too. Only a call finds
 * the friends; the name of a function without a call means the published function alone. */
#define TRACEWEIR_LONG_HANDLES 1
struct _EVENT_FILTER_DESCRIPTOR;
namespace traceweir {
/* Has a member only for "unsigned long", so that NULL selects the published function. */
template <typename Handle> struct LongHandle {};
template <> struct LongHandle<unsigned long> {
    typedef uint32_t Status;
};
/* The published type of a handle. It depends on a template parameter, so that the published
 * function, which is declared later, is looked up only when a friend is called. */
template <typename Handle> struct PublishedHandle {
    typedef unsigned long long Type;
};
}
#define TRACEWEIR_FRIENDS_OF_GUID \
    template <typename Handle>                                                                                                          \
    friend typename traceweir::LongHandle<Handle>::Status                                                                               \
    EventRegister(const _GUID *ProviderId,                                                                                              \
                  void (*EnableCallback)(const _GUID *, uint32_t, unsigned char, unsigned long long, unsigned long long,                \
                                         _EVENT_FILTER_DESCRIPTOR *, void *),                                                           \
                  void *CallbackContext, Handle *RegHandle) {                                                                           \
        return EventRegister(ProviderId, EnableCallback, CallbackContext,                                                               \
                             reinterpret_cast<typename traceweir::PublishedHandle<Handle>::Type *>(RegHandle));                         \
    }                                                                                                                                   \
    template <typename Keyword, typename Handle>                                                                                        \
    friend typename traceweir::LongHandle<Keyword>::Status                                                                              \
    EventRegister(const _GUID *ProviderId,                                                                                              \
                  void (*EnableCallback)(const _GUID *, uint32_t, unsigned char, Keyword, Keyword, _EVENT_FILTER_DESCRIPTOR *, void *), \
                  void *CallbackContext, Handle *RegHandle) {                                                                           \
        typedef void (*Published)(const _GUID *, uint32_t, unsigned char, unsigned long long, unsigned long long,                       \
                                  _EVENT_FILTER_DESCRIPTOR *, void *);                                                                  \
        return EventRegister(ProviderId, reinterpret_cast<Published>(EnableCallback), CallbackContext,                                  \
                             reinterpret_cast<typename traceweir::PublishedHandle<Handle>::Type *>(RegHandle));                         \
    }
#endif
#endif
#ifndef TRACEWEIR_LONG_HANDLES
#define TRACEWEIR_FRIENDS_OF_GUID
#endif

typedef struct _GUID {
    uint32_t Data1;
    uint16_t Data2;
    uint16_t Data3;
    uint8_t Data4[8];
    TRACEWEIR_FRIENDS_OF_GUID
} GUID;

#ifdef __cplusplus
}
#endif

typedef GUID *LPGUID;
typedef const GUID *LPCGUID;
typedef GUID IID, *LPIID;
typedef GUID CLSID, *LPCLSID;
typedef GUID FMTID, *LPFMTID;
/* Declared by rpcdce.h on Windows. */
#ifndef UUID_DEFINED
#define UUID_DEFINED
typedef GUID UUID;
#endif

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

#define REFIID REFGUID
#define REFCLSID REFGUID
#define REFFMTID REFGUID
#define IsEqualIID(a, b) IsEqualGUID(a, b)
#define IsEqualCLSID(a, b) IsEqualGUID(a, b)
#define IsEqualFMTID(a, b) IsEqualGUID(a, b)

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
