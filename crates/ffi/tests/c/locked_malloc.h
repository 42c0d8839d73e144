/* An allocator that registers a provider under its lock; see locked_malloc.c. */
#ifndef LOCKED_MALLOC_H
#define LOCKED_MALLOC_H

#include <evntprov.h>

/* How long the registration inside the first allocation took, in microseconds. */
long first_registration_us(void);
/* From now on each allocation writes an event under the lock, or no more. */
void trace_allocations(int is_traced);
/* How many allocations have written an event. */
unsigned traced_allocations(void);
/* Registers a provider below the allocator's lock. Returns how long that took, in microseconds. */
long register_below_lock(const GUID *provider, REGHANDLE *handle);

#endif
