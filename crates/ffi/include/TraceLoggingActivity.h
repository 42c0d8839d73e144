/* Activities: events that belong together, from a start to a stop. For C++17.
 *
 *   TraceLoggingActivity<g_provider> transfer;
 *   TraceLoggingWriteStart(transfer, "Transfer", TraceLoggingString(path));
 *   TraceLoggingWriteTagged(transfer, "Retry", TraceLoggingInt32(attempt));
 *   TraceLoggingWriteStop(transfer, "Transfer", TraceLoggingHResult(hr));
 *
 *     created ──WriteStart──> started ──WriteStop──> stopped
 *                                └──destructor: writes a stop event with the name of the start
 *
 * An activity gets an id if a session listens to its level and keyword when it starts.
 * TraceLoggingActivity tags only the events that are written with it. TraceLoggingThreadActivity
 * sets its id as that of the thread until it stops, so that all events of the thread belong to it.
 * Thread activities must be nested, and each must stop on the thread on which it started. Calling
 * the macros out of order is a bug in the program, which assertions detect.
 *
 * Written from the published documentation of traceloggingactivity.h.
 */
#ifndef TRACEWEIR_TRACELOGGINGACTIVITY_H
#define TRACEWEIR_TRACELOGGINGACTIVITY_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#ifndef __cplusplus
#error "TraceLoggingActivity.h is for C++"
#endif

#include "TraceLoggingProvider.h"
#include "winmeta.h"

namespace traceweir::tlg {

/* The stop event of the destructor: constants of the code that started the activity. */
struct StopEvent {
    const EVENT_DESCRIPTOR *descriptor;
    const void *metadata;
    ULONG size;
};

/* The common part of both kinds of activity. */
template <const TraceLoggingHProvider &provider, ULONGLONG keyword, UCHAR level>
class ActivityBase {
  public:
    static constexpr ULONGLONG Keyword = keyword;
    static constexpr UCHAR Level = level;

    ActivityBase(const ActivityBase &) = delete;
    ActivityBase &operator=(const ActivityBase &) = delete;

    TraceLoggingHProvider Provider() const { return provider; }

    /* All zeros before the start, and also later if no session listened at the start. */
    const GUID *Id() const { return &id_; }

    /* Only for the macros. */
    const GUID *zInternalRelatedId() const { return has_related_ ? &related_ : nullptr; }
    bool zInternalIsStarted() const { return state_ == State::started; }

  protected:
    enum class State : UCHAR { created, started, stopped };

    ActivityBase() = default;
    ActivityBase(ActivityBase &&other) noexcept
        : related_(other.related_), has_related_(other.has_related_), stop_(other.stop_), id_(other.id_), state_(other.state_) {
        other.id_ = GUID{};
        other.has_related_ = false;
        other.state_ = State::created;
    }

    void relate(const GUID &id) {
        assert(state_ == State::created && "the related activity must be set before the start");
        related_ = id;
        has_related_ = true;
    }

    /* Marks the activity as started, and creates its id if a session listens. Returns whether it
     * has an id. */
    bool begin(const StopEvent &stop) {
        assert(state_ != State::started && "the activity has been started already");
        state_ = State::started;
        stop_ = stop;
        id_ = GUID{};
        return TraceLoggingProviderEnabled(provider, level, keyword) &&
               EventActivityIdControl(EVENT_ACTIVITY_CTRL_CREATE_ID, &id_) == ERROR_SUCCESS;
    }

    void end() {
        assert(state_ == State::started && "an activity that has not been started cannot be stopped");
        state_ = State::stopped;
    }

    void write_stop() const {
        if (id_ != GUID{} && TraceLoggingProviderEnabled(provider, level, keyword)) {
            Block data[2];
            _Tlg_transfer(provider, stop_.descriptor, stop_.metadata, stop_.size, data, 2, &id_, nullptr);
        }
    }

    GUID related_{};
    bool has_related_ = false;

  private:
    StopEvent stop_{};
    GUID id_{};
    State state_ = State::created;
};

} // namespace traceweir::tlg

/* An activity with an id of its own. It does not change the activity id of the thread. It can be
 * moved, also to another thread. */
template <const TraceLoggingHProvider &provider, ULONGLONG keyword = 0, UCHAR level = WINEVENT_LEVEL_VERBOSE>
class TraceLoggingActivity : public traceweir::tlg::ActivityBase<provider, keyword, level> {
    using Base = traceweir::tlg::ActivityBase<provider, keyword, level>;

  public:
    TraceLoggingActivity() = default;
    TraceLoggingActivity(TraceLoggingActivity &&other) noexcept = default;
    ~TraceLoggingActivity() {
        if (this->zInternalIsStarted()) {
            this->write_stop();
        }
    }

    /* Sets the related activity; must be called before the start. */
    template <class Other>
    void SetRelatedActivity(const Other &activity) {
        this->relate(*activity.Id());
    }
    void SetRelatedActivityId(const GUID &id) { this->relate(id); }
    void SetRelatedActivityId(const GUID *id) { this->relate(*id); }

    void zInternalStart(const traceweir::tlg::StopEvent &stop) { this->begin(stop); }
    void zInternalStop() { this->end(); }
};

/* An activity that all events of the thread belong to, from its start to its stop. Its related
 * activity is the previous activity of the thread. */
template <const TraceLoggingHProvider &provider, ULONGLONG keyword = 0, UCHAR level = WINEVENT_LEVEL_VERBOSE>
class TraceLoggingThreadActivity : public traceweir::tlg::ActivityBase<provider, keyword, level> {
    using Base = traceweir::tlg::ActivityBase<provider, keyword, level>;

  public:
    TraceLoggingThreadActivity() = default;
    ~TraceLoggingThreadActivity() {
        if (this->zInternalIsStarted()) {
            this->write_stop();
            restore();
        }
    }

    void zInternalStart(const traceweir::tlg::StopEvent &stop) {
        if (this->begin(stop)) {
            this->related_ = *this->Id();
            EventActivityIdControl(EVENT_ACTIVITY_CTRL_GET_SET_ID, &this->related_);
            this->has_related_ = true;
        }
    }
    void zInternalStop() {
        this->end();
        restore();
    }

  private:
    void restore() {
        if (this->has_related_) {
            EventActivityIdControl(EVENT_ACTIVITY_CTRL_SET_ID, &this->related_);
            this->has_related_ = false;
        }
    }
};

/* Sets an activity id for the thread during the life of the object. */
class TraceLoggingThreadActivityIdSetter {
  public:
    explicit TraceLoggingThreadActivityIdSetter(const GUID &id) : previous_(id) {
        EventActivityIdControl(EVENT_ACTIVITY_CTRL_GET_SET_ID, &previous_);
    }
    explicit TraceLoggingThreadActivityIdSetter(const GUID *id) : TraceLoggingThreadActivityIdSetter(*id) {}
    ~TraceLoggingThreadActivityIdSetter() { EventActivityIdControl(EVENT_ACTIVITY_CTRL_SET_ID, &previous_); }
    TraceLoggingThreadActivityIdSetter(const TraceLoggingThreadActivityIdSetter &) = delete;
    TraceLoggingThreadActivityIdSetter &operator=(const TraceLoggingThreadActivityIdSetter &) = delete;

  private:
    GUID previous_;
};

/* (activity, "Name", …): starts the activity. Its events have the level and keyword of the
 * activity, unless they set their own. */
#define TraceLoggingWriteStart(activity, ...)                                                           \
    do {                                                                                                \
        _TLG_STATIC_ASSERT(_TLG_IS_NAME(_TLG_FIRST(__VA_ARGS__)), "the name of an event has no NUL inside"); \
        _TLG_START(activity, _TLG_FIRST(__VA_ARGS__), __VA_ARGS__)  \
    } while (0)

/* (activity, "Name", …): stops the activity. */
#define TraceLoggingWriteStop(activity, ...)                                                            \
    do {                                                                                                \
        auto &_Tlg_activity = (activity);                                                               \
        using _Tlg_type = std::remove_reference_t<decltype(_Tlg_activity)>;                             \
        _TLG_EVENT(_Tlg_activity.Provider(), _TLG_FIRST(__VA_ARGS__), _Tlg_type::Level, _Tlg_type::Keyword, \
                   WINEVENT_OPCODE_STOP, _Tlg_transfer, (_Tlg_activity.Id(), nullptr), __VA_ARGS__);    \
        _Tlg_activity.zInternalStop();                                                                  \
    } while (0)

/* (activity, "Name", …): writes an event that belongs to the activity. */
#define TraceLoggingWriteTagged(activity, ...)                                                          \
    do {                                                                                                \
        const auto &_Tlg_activity = (activity);                                                         \
        using _Tlg_type = std::remove_cv_t<std::remove_reference_t<decltype(_Tlg_activity)>>;           \
        _TLG_EVENT(_Tlg_activity.Provider(), _TLG_FIRST(__VA_ARGS__), _Tlg_type::Level, _Tlg_type::Keyword, 0, \
                   _Tlg_transfer, (_Tlg_activity.Id(), nullptr), __VA_ARGS__);                          \
    } while (0)

/* (provider, …): a thread activity with the name of the function, from here to the end of the
 * scope. */
#define TraceLoggingFunction(...)                                                                       \
    TraceLoggingThreadActivity<_TLG_FIRST(__VA_ARGS__)> _Tlg_function;                                  \
    do {                                                                                                \
        _TLG_START(_Tlg_function, __func__, __VA_ARGS__) \
    } while (0)

/* Writes the start event, and defines the constants of the stop event for the destructor. */
#define _TLG_START(activity, name, ...)                                              \
    auto &_Tlg_activity = (activity);                                                                   \
    using _Tlg_type = std::remove_reference_t<decltype(_Tlg_activity)>;                                 \
    _TLG_CONSTANTS_NAMED(_Tlg, name, _Tlg_type::Level, _Tlg_type::Keyword, WINEVENT_OPCODE_START, \
                         __VA_ARGS__);                                                                  \
    _TLG_CONSTANTS_NAMED(_Tlg_stop, name, _Tlg_type::Level, _Tlg_type::Keyword,      \
                         WINEVENT_OPCODE_STOP, 0);                                                      \
    _Tlg_activity.zInternalStart({&_Tlg_stop_descriptor, &_Tlg_stop_metadata, sizeof(_Tlg_stop_metadata)}); \
    if (__builtin_expect(TraceLoggingProviderEnabled(_Tlg_activity.Provider(), _Tlg_descriptor.Level,   \
                                                     _Tlg_descriptor.Keyword), 0)) {                    \
        ::traceweir::tlg::write(                                                                        \
            ::traceweir::tlg::_Tlg_transfer(_Tlg_activity.Id(), _Tlg_activity.zInternalRelatedId()),    \
            _Tlg_activity.Provider(), _Tlg_descriptor, &_Tlg_metadata, sizeof(_Tlg_metadata)            \
                _TLG_EACH(_TLG_FILL, __VA_ARGS__));                                                     \
    }

#endif /* TRACEWEIR_TRACELOGGINGACTIVITY_H */
