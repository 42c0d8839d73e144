#include <evntprov.h>

#if !defined(TRACEWEIR_MC_COMMON) && !defined(MCGEN_DISABLE_PROVIDER_CODE_GENERATION)
#define TRACEWEIR_MC_COMMON

/* A program may define these macros before it includes the header, to use functions or checks of its own. */
#ifndef MCGEN_EVENTREGISTER
#define MCGEN_EVENTREGISTER EventRegister
#endif
#ifndef MCGEN_EVENTUNREGISTER
#define MCGEN_EVENTUNREGISTER EventUnregister
#endif
#ifndef MCGEN_EVENTSETINFORMATION
#define MCGEN_EVENTSETINFORMATION EventSetInformation
#endif
#ifndef MCGEN_HAVE_EVENTSETINFORMATION
#define MCGEN_HAVE_EVENTSETINFORMATION 1 /* 0: never call MCGEN_EVENTSETINFORMATION. */
#endif
#ifndef MCGEN_EVENTWRITETRANSFER
#define MCGEN_EVENTWRITETRANSFER EventWriteTransfer
#endif
#ifndef MCGEN_PENABLECALLBACK
#define MCGEN_PENABLECALLBACK PENABLECALLBACK
#endif
#ifndef MCGEN_GETLENGTHSID /* The second byte of a SID is the number of its parts. */
#define MCGEN_GETLENGTHSID(Sid) (8u + 4u * (ULONG)((const UCHAR *)(Sid))[1])
#endif
#ifndef MCGEN_EVENT_ENABLED
#define MCGEN_EVENT_ENABLED(EventName) EventEnabled##EventName()
#endif
#ifndef MCGEN_ENABLE_CHECK
#define MCGEN_ENABLE_CHECK(Context, Descriptor) McGenEventEnabled(&(Context), &(Descriptor))
#endif

/* The level and keywords that sessions enable. The provider's callback changes them; they are read without a lock. */
typedef struct _MCGEN_TRACE_CONTEXT {
    REGHANDLE RegistrationHandle;
    ULONGLONG MatchAnyKeyword;
    ULONGLONG MatchAllKeyword;
    UCHAR Level;
    UCHAR IsEnabled;
} MCGEN_TRACE_CONTEXT, *PMCGEN_TRACE_CONTEXT;

static inline void NTAPI McGenControlCallbackV2(LPCGUID SourceId, ULONG ControlCode, UCHAR Level, ULONGLONG MatchAnyKeyword,
                                                ULONGLONG MatchAllKeyword, PEVENT_FILTER_DESCRIPTOR FilterData,
                                                PVOID CallbackContext) {
    PMCGEN_TRACE_CONTEXT Context = (PMCGEN_TRACE_CONTEXT)CallbackContext;
    (void)SourceId;
    (void)FilterData;
    if (ControlCode <= 1) { /* A request for the state changes nothing. */
        __atomic_store_n(&Context->Level, Level, __ATOMIC_RELAXED);
        __atomic_store_n(&Context->MatchAnyKeyword, MatchAnyKeyword, __ATOMIC_RELAXED);
        __atomic_store_n(&Context->MatchAllKeyword, MatchAllKeyword, __ATOMIC_RELAXED);
        __atomic_store_n(&Context->IsEnabled, (UCHAR)ControlCode, __ATOMIC_RELEASE);
    }
#ifdef MCGEN_PRIVATE_ENABLE_CALLBACK_V2
    /* The program defines this before it includes the header, for example to write its state. */
    MCGEN_PRIVATE_ENABLE_CALLBACK_V2(SourceId, ControlCode, Level, MatchAnyKeyword, MatchAllKeyword, FilterData, CallbackContext);
#endif
}

static inline ULONG McGenEventRegister(LPCGUID ProviderId, PMCGEN_TRACE_CONTEXT Context) {
    ULONG Status;
    if (Context->RegistrationHandle != 0) {
        return 0; /* Registered already. */
    }
    Status = MCGEN_EVENTREGISTER(ProviderId, (MCGEN_PENABLECALLBACK)McGenControlCallbackV2, Context, &Context->RegistrationHandle);
#if MCGEN_HAVE_EVENTSETINFORMATION
    if (Status == 0) {
        /* Lets sessions record which file holds the compiled manifest. Without it, traces are only harder to read. */
        (void)MCGEN_EVENTSETINFORMATION(Context->RegistrationHandle, EventProviderBinaryTrackInfo, NULL, 0);
    }
#endif
    return Status;
}

static inline ULONG McGenEventUnregister(PMCGEN_TRACE_CONTEXT Context) {
    REGHANDLE Handle = Context->RegistrationHandle;
    if (Handle == 0) {
        return 0;
    }
    Context->RegistrationHandle = 0;
    __atomic_store_n(&Context->IsEnabled, (UCHAR)0, __ATOMIC_RELAXED);
    return MCGEN_EVENTUNREGISTER(Handle);
}

/* Returns whether a session may have enabled events of this level and keyword. EventWrite checks each session. */
static inline BOOL McGenLevelKeywordEnabled(const MCGEN_TRACE_CONTEXT *Context, UCHAR Level, ULONGLONG Keyword) {
    UCHAR Most;
    ULONGLONG Any, All;
    if (__builtin_expect(__atomic_load_n(&Context->IsEnabled, __ATOMIC_ACQUIRE) == 0, 1)) {
        return 0;
    }
    Most = __atomic_load_n(&Context->Level, __ATOMIC_RELAXED);
    Any = __atomic_load_n(&Context->MatchAnyKeyword, __ATOMIC_RELAXED);
    All = __atomic_load_n(&Context->MatchAllKeyword, __ATOMIC_RELAXED);
    return (Level <= Most || Most == 0) &&
           (Keyword == 0 || ((Any == 0 || (Keyword & Any) != 0) && (Keyword & All) == All));
}

static inline BOOL McGenEventEnabled(const MCGEN_TRACE_CONTEXT *Context, PCEVENT_DESCRIPTOR Descriptor) {
    return McGenLevelKeywordEnabled(Context, Descriptor->Level, Descriptor->Keyword);
}

/* Describes a text with its NUL. A null pointer is written as the text NULL. */
static inline void McGenText8(PEVENT_DATA_DESCRIPTOR Block, PCSTR Text) {
    ULONG Length = 0;
    if (Text == NULL) {
        Text = "NULL";
    }
    while (Text[Length] != 0) {
        Length++;
    }
    EventDataDescCreate(Block, Text, Length + 1);
}

static inline void McGenText16(PEVENT_DATA_DESCRIPTOR Block, PCWSTR Text) {
    static const WCHAR Null[] = {'N', 'U', 'L', 'L', 0};
    ULONG Length = 0;
    if (Text == NULL) {
        Text = Null;
    }
    while (Text[Length] != 0) {
        Length++;
    }
    EventDataDescCreate(Block, Text, (Length + 1) * 2);
}

#endif /* TRACEWEIR_MC_COMMON */
