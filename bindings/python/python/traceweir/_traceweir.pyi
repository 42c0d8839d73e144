from . import ArrowStream as ArrowStream
from . import Event as Event
from . import EventIterator as EventIterator
from . import Frame as Frame
from . import Trace as Trace
from . import TraceError as TraceError
from . import TraceFileInfo as TraceFileInfo
from . import TraceWarning as TraceWarning
from . import Watch as Watch
from . import __version__ as __version__
from . import open as open
from . import watch as watch

__all__ = [
    "ArrowStream",
    "Event",
    "EventIterator",
    "Frame",
    "Trace",
    "TraceError",
    "TraceFileInfo",
    "TraceWarning",
    "Watch",
    "__version__",
    "open",
    "watch",
]
