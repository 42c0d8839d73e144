/* An allocator that registers a provider while it holds its lock; see locked_malloc.c. */
#ifndef LOCKED_MALLOC_H
#define LOCKED_MALLOC_H

#include <evntprov.h>

/* How long the registration inside the first allocation took, in microseconds. */
long first_registration_us(void);
/* Sets whether each allocation writes an event, which it does while it holds the lock. */
void trace_allocations(int is_traced);
/* How many allocations have written an event. */
unsigned traced_allocations(void);
/* Registers a provider while it holds the allocator's lock. Returns how long that took, in
 * microseconds. */
long register_below_lock(const GUID *provider, REGHANDLE *handle);

#endif
