/* combaseapi.h: the functions that programs call before they create COM objects. There are no COM
 * classes here, so CoCreateInstance returns REGDB_E_CLASSNOTREG. */
#ifndef TRACEWEIR_COMBASEAPI_H
#define TRACEWEIR_COMBASEAPI_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <stdlib.h>

#include "windows.h"

#ifndef TRACEWEIR_NO_WIN32_CALLS

typedef enum tagCOINIT {
    COINIT_MULTITHREADED = 0x0,
    COINIT_APARTMENTTHREADED = 0x2,
    COINIT_DISABLE_OLE1DDE = 0x4,
    COINIT_SPEED_OVER_MEMORY = 0x8
} COINIT;

#define CLSCTX_INPROC_SERVER 0x1
#define CLSCTX_INPROC_HANDLER 0x2
#define CLSCTX_LOCAL_SERVER 0x4
#define CLSCTX_REMOTE_SERVER 0x10
#define CLSCTX_ALL (CLSCTX_INPROC_SERVER | CLSCTX_INPROC_HANDLER | CLSCTX_LOCAL_SERVER | CLSCTX_REMOTE_SERVER)

#define REGDB_E_CLASSNOTREG ((HRESULT)0x80040154u)
#define E_POINTER ((HRESULT)0x80004003u)

#ifdef __cplusplus
extern "C" {
#endif

/* Returns S_FALSE if the thread has called it before. */
HRESULT WINAPI CoInitializeEx(_In_opt_ LPVOID pvReserved, DWORD dwCoInit);
void WINAPI CoUninitialize(void);
HRESULT WINAPI CoCreateInstance(REFGUID rclsid, void *pUnkOuter, DWORD dwClsContext, REFGUID riid, LPVOID *ppv);

static inline LPVOID CoTaskMemAlloc(SIZE_T cb) {
    return malloc(cb);
}
static inline LPVOID CoTaskMemRealloc(LPVOID pv, SIZE_T cb) {
    return realloc(pv, cb);
}
static inline void CoTaskMemFree(LPVOID pv) {
    free(pv);
}

#ifdef __cplusplus
}
#endif
#endif

#endif /* TRACEWEIR_COMBASEAPI_H */
