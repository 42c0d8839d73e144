// Runs a command in the kernel session that Tracy's client starts on Windows, with Tracy's own functions for ETW, and
// prints each event that the callback receives: driver OUT COMMAND...

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static int64_t monotonic_now()
{
    timespec time;
    clock_gettime( CLOCK_MONOTONIC, &time );
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// The clock of the session, as Tracy reads it for its own events.
static int64_t session_now()
{
#ifdef TRACY_TIMER_QPC
    return monotonic_now();
#else
    return int64_t( __rdtsc() );
#endif
}

// What TracyETW.cpp uses of the rest of Tracy, to report errors.
namespace tracy
{
struct SourceLocationData
{
    const char* name;
    const char* function;
    const char* file;
    uint32_t line;
    uint32_t color;
};
struct ScopedZone
{
    ScopedZone( const SourceLocationData*, int, bool ) {}
};
enum class MessageSourceType { Tracy };
enum class MessageSeverity { Error };
struct Profiler
{
    static void LogString( MessageSourceType, MessageSeverity, uint32_t, int, size_t size, const char* text )
    {
        fprintf( stderr, "%.*s\n", int( size ), text );
    }
};
}

#define INITGUID
#include <windows.h>
#include <evntrace.h>
#include "client/windows/TracyETW_compat.h"
#include "client/windows/TracyETW.cpp"

using namespace tracy;

static FILE* out;

// Reads the same fields as Tracy's EventRecordCallback.
static void WINAPI print_event( PEVENT_RECORD record )
{
    const auto& header = record->EventHeader;
    const auto opcode = header.EventDescriptor.Opcode;
    const auto time = (long long)header.TimeStamp.QuadPart;
    const auto cpu = unsigned( record->BufferContext.ProcessorNumber );
    if( IsEqualGUID( header.ProviderId, etw::ThreadGuid ) && opcode == etw::CSwitch::Opcode )
    {
        const auto change = (const etw::CSwitch*)record->UserData;
        fprintf( out, "switch %lld %u %u %u\n", time, change->newThreadId, cpu, change->oldThreadId );
    }
    else if( IsEqualGUID( header.ProviderId, etw::ThreadGuid ) && opcode == etw::ReadyThread::Opcode )
    {
        fprintf( out, "ready %lld %u\n", time, ( (const etw::ReadyThread*)record->UserData )->threadId );
    }
    else if( IsEqualGUID( header.ProviderId, etw::ThreadGuid ) &&
             ( opcode == etw::ThreadStart::Opcode || opcode == etw::ThreadDCStart::Opcode ) )
    {
        const auto thread = (const etw::ThreadInfo*)record->UserData;
        fprintf( out, "thread %lld %u %u\n", time, thread->threadId, thread->processId );
    }
    else if( IsEqualGUID( header.ProviderId, etw::PerfInfoGuid ) && opcode == etw::SampledProfile::Opcode )
    {
        // Address, then thread.
        fprintf( out, "sample %lld %u\n", time, *(const uint32_t*)( (const char*)record->UserData + 8 ) );
    }
    else if( IsEqualGUID( header.ProviderId, etw::StackWalkGuid ) && opcode == etw::StackWalkEvent::Opcode )
    {
        const auto walk = (const etw::StackWalkEvent*)record->UserData;
        const auto frames = ( record->UserDataLength - 16 ) / 8;
        fprintf( out, "stack %lld %u %u ", (long long)walk->eventTimeStamp, walk->stackThread, walk->stackProcess );
        for( int i = 0; i < frames; i++ ) fprintf( out, "%s0x%llx", i ? "," : "", (unsigned long long)walk->stack[i] );
        fprintf( out, "\n" );
    }
}

static bool run( char** command )
{
    const auto child = fork();
    if( child == 0 )
    {
        execvp( command[0], command );
        _exit( 127 );
    }
    int status = 0;
    return child > 0 && waitpid( child, &status, 0 ) == child && status == 0;
}

int main( int argc, char** argv )
{
    if( argc < 3 || !( out = fopen( argv[1], "w" ) ) ) return 2;

    // The steps of Tracy's SysTraceStart.
    if( !etw::CheckAdminPrivilege() ) return 3;
    auto session = etw::StartSingletonKernelLoggerSession( 0 );
    if( session.handle == 0 || !etw::IsSingletonKernelLoggerSession( session ) ) return 4;
    if( etw::EnableProcessAndThreadMonitoring( session ) != ERROR_SUCCESS ) return 5;
    if( etw::EnableContextSwitchMonitoring( session ) != ERROR_SUCCESS ) return 6;
    if( etw::EnableCPUProfiling( session, 1000 ) != ERROR_SUCCESS ) return 7;
    const auto consumer = etw::SetupEventConsumer( session, print_event );
    if( consumer == INVALID_PROCESSTRACE_HANDLE ) return 8;

    ULONG status = 1;
    std::thread worker( [&] { status = etw::EventConsumerLoop( consumer ); } );
    const auto begin = session_now(), begin_ns = monotonic_now();
    const bool ok = run( argv + 2 );
    const auto end = session_now(), end_ns = monotonic_now();
    // Ending the session first delivers all its events. Tracy closes the consumer first.
    if( etw::StopSession( session ) != ERROR_SUCCESS ) return 10;
    worker.join();
    etw::StopEventConsumer( consumer );
    fprintf( out, "clock %lld %lld %lld\n", (long long)begin, (long long)end, (long long)( end_ns - begin_ns ) );
    return fclose( out ) == 0 && ok && status == ERROR_SUCCESS ? 0 : 11;
}
