/* The null GUID. Each source has its own: there is no library of GUIDs to link. */
#ifndef __CGUID_H__
#define __CGUID_H__

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "guiddef.h"

__attribute__((unused)) static const GUID GUID_NULL = {0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}};

#endif /* __CGUID_H__ */
