"""Every error Millstream raises, in one tree, each with a stable code.

```
MillstreamError
├── ProgramError                 PROGRAM_INVALID          the program cannot be built
│   ├── NotSupportedYet          NOT_SUPPORTED_YET        a call whose feature has not landed
│   ├── UnsupportedOperation     UNSUPPORTED_OPERATION    a call that makes no sense there
│   │   ├── ModuleNotAvailable   MODULE_NOT_AVAILABLE     a module of PyFlink's that is not served
│   │   └── NameNotFound         NAME_NOT_FOUND           a call that is not there, perhaps misspelt
│   ├── EmptyProgramError        EMPTY_PROGRAM            execute() with no operators
│   ├── InvalidArgument          INVALID_ARGUMENT         a bad parameter
│   └── FunctionNotSerializable  FUNCTION_NOT_SERIALIZABLE
├── ConfigurationError           CONFIGURATION_INVALID    a bad configuration value
├── RuntimeUnusable              ENVIRONMENT_UNUSABLE     Java, Python or Spark is missing or unfit
│   ├── ExecutorUnusable         EXECUTOR_UNUSABLE        the Python of an executor lacks packages, or does not fit
│   └── ClusterUnreachable       CLUSTER_UNREACHABLE      there is no master where one should be
├── SessionError                 SESSION_FAILED           a session cannot be started, reached or asked
└── JobError                     JOB_FAILED               a running job failed
    ├── UserFunctionError        USER_FUNCTION_FAILED
    ├── KeySelectorError         KEY_SELECTOR_FAILED
    ├── TypeMismatchError        TYPE_MISMATCH
    ├── RecordNotSerializable    RECORD_NOT_SERIALIZABLE
    ├── MissingTimestamp         MISSING_TIMESTAMP        event time asked of a record that has none
    ├── SourceError              SOURCE_FAILED
    │   └── SourceNotFound       SOURCE_NOT_FOUND         a missing file or folder
    ├── SinkError                SINK_FAILED
    ├── StateError               STATE_UNREADABLE         state could not be read or written
    │   ├── StateDamaged         STATE_DAMAGED            a file is missing, cut, changed or another one
    │   ├── StateMismatch        STATE_MISMATCH           a restore that does not fit the program
    │   ├── StateNotFound        STATE_NOT_FOUND          no checkpoint or savepoint there
    │   ├── StateNotTrusted      STATE_NOT_TRUSTED        reading would run code, and nobody has allowed it
    │   ├── StateNotSigned       STATE_NOT_SIGNED         a file is not signed with the job's key
    │   ├── KeyClassNotFound     KEY_CLASS_NOT_FOUND      a key's class is not there, or may not be used
    │   ├── StateNotSerializable STATE_NOT_SERIALIZABLE   a value that cannot be written, or not be read again
    │   ├── StateLost            STATE_LOST               a process has ended before its changes were in a checkpoint
    │   ├── StorageAway          STORAGE_AWAY             the job's folder is not there; it may come back
    │   ├── CheckpointFailed     CHECKPOINT_FAILED        a checkpoint or savepoint was not written, or not in time
    │   └── NoCurrentKey         NO_CURRENT_KEY           keyed state used where there is no key
    ├── DependencyError          DEPENDENCY_FAILED        a file or package of the program cannot be put in place
    ├── JobLocked                JOB_LOCKED               another driver runs this job
    │   └── LeadershipLost       LEADERSHIP_LOST          this driver is not the job's leader any more
    ├── EngineError              ENGINE_FAILED            Spark failed the job; its message is kept
    └── JobCancelled             JOB_CANCELLED
```

A message has three parts: what failed; the evidence (operator, the user's line, record, position);
what to do. Errors cross processes as text (`encode`), because Spark hands the driver nothing else of
a Python worker's exception, and come back as the same class (`decode`).
"""

from __future__ import annotations

import base64
import json
import os
import re
import traceback
import zlib
from typing import Any, ClassVar

from millstream.redaction import shown

__all__ = [
    "CheckpointFailed",
    "ClusterUnreachable",
    "ConfigurationError",
    "DependencyError",
    "EmptyProgramError",
    "EngineError",
    "ExecutorUnusable",
    "FunctionNotSerializable",
    "InvalidArgument",
    "JobCancelled",
    "JobError",
    "JobLocked",
    "KeyClassNotFound",
    "KeySelectorError",
    "LeadershipLost",
    "MillstreamError",
    "MissingTimestamp",
    "ModuleNotAvailable",
    "NameNotFound",
    "NoCurrentKey",
    "NotSupportedYet",
    "ProgramError",
    "RecordNotSerializable",
    "RuntimeUnusable",
    "SessionError",
    "SinkError",
    "SourceError",
    "SourceNotFound",
    "StateDamaged",
    "StateError",
    "StateLost",
    "StateMismatch",
    "StateNotFound",
    "StateNotSerializable",
    "StateNotSigned",
    "StateNotTrusted",
    "StorageAway",
    "TypeMismatchError",
    "UnsupportedOperation",
    "UserFunctionError",
    "decode",
    "encode",
    "shortly",
    "told",
]

_BY_CODE: dict[str, type[MillstreamError]] = {}


def told(error: BaseException) -> str:
    """The kind of an exception and what it says, if it says anything. An exception's own text may fail as well.

    >>> told(ValueError("no number")), told(StopIteration())
    ('ValueError: no number', 'StopIteration')
    """
    try:
        text = str(error)
    except Exception as failed:
        text = f"<its text failed: {type(failed).__name__}>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class MillstreamError(Exception):
    """The root. `code` is stable; `evidence` holds named facts; `hint` says what to do.

    >>> print(
    ...     InvalidArgument("parallelism must be 1 or more", got=0, hint="pass a positive number")
    ... )
    [INVALID_ARGUMENT] parallelism must be 1 or more
      got: 0
      what to do: pass a positive number
    """

    code: ClassVar[str] = "MILLSTREAM"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _BY_CODE[cls.code] = cls

    def __init__(self, what: str, *, hint: str | None = None, **evidence: Any) -> None:
        # What a program says and holds is in here: nothing leaves with a secret or a terminal's commands.
        self.what = what = shown(str(what))
        self.hint = None if hint is None else shown(hint)
        self.evidence = {
            name: shown(value) if isinstance(value, str) else value
            for name, value in evidence.items()
            if value is not None
        }
        # What `shortly` leaves out, as Python would have shown it.
        self.whole = ""
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.what}"]
        for name, value in self.evidence.items():
            text = shown(str(value)).rstrip("\n")
            if "\n" in text:
                lines.append(f"  {name.replace('_', ' ')}:")
                lines.extend("    " + line for line in text.split("\n"))
            else:
                lines.append(f"  {name.replace('_', ' ')}: {text}")
        if self.hint:
            lines.append(f"  what to do: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.code, self.what, self.hint, self.evidence)


class ProgramError(MillstreamError):
    """The program cannot be built as written."""

    code = "PROGRAM_INVALID"


class NotSupportedYet(ProgramError):
    """A call of the API whose feature has not landed."""

    code = "NOT_SUPPORTED_YET"


class UnsupportedOperation(ProgramError):
    """A call that has no meaning on this object."""

    code = "UNSUPPORTED_OPERATION"


class ModuleNotAvailable(UnsupportedOperation, ImportError):
    """A program imports a module of PyFlink's that Millstream does not serve."""

    code = "MODULE_NOT_AVAILABLE"


class NameNotFound(UnsupportedOperation, AttributeError):
    """A program calls what an object does not have."""

    code = "NAME_NOT_FOUND"


class EmptyProgramError(ProgramError):
    """`execute` was called and nothing with a sink has been defined since the last one."""

    code = "EMPTY_PROGRAM"


class InvalidArgument(ProgramError, ValueError):
    """A parameter has a value or a type that cannot work."""

    code = "INVALID_ARGUMENT"


class FunctionNotSerializable(ProgramError):
    """A user function cannot travel to the workers."""

    code = "FUNCTION_NOT_SERIALIZABLE"


class ConfigurationError(MillstreamError, ValueError):
    """A configuration value cannot be read as its option's type."""

    code = "CONFIGURATION_INVALID"


class RuntimeUnusable(MillstreamError):
    """Java, Python or Spark on this machine is missing or does not fit."""

    code = "ENVIRONMENT_UNUSABLE"


class ExecutorUnusable(RuntimeUnusable):
    """The Python of an executor does not have what a job needs, or is another than the driver's."""

    code = "EXECUTOR_UNUSABLE"


class ClusterUnreachable(RuntimeUnusable):
    """The master of a cluster cannot be reached, or does not answer."""

    code = "CLUSTER_UNREACHABLE"


class SessionError(MillstreamError):
    """A session cannot be started or reached, or does not do what it is asked for."""

    code = "SESSION_FAILED"


class JobError(MillstreamError):
    """A job that was running has failed."""

    code = "JOB_FAILED"


class UserFunctionError(JobError):
    """A user's function raised."""

    code = "USER_FUNCTION_FAILED"


class KeySelectorError(JobError):
    """A key selector raised, or returned what cannot be a key."""

    code = "KEY_SELECTOR_FAILED"


class TypeMismatchError(JobError):
    """A value is not of the type its operator declares."""

    code = "TYPE_MISMATCH"


class RecordNotSerializable(JobError):
    """A record cannot be sent to the next operator."""

    code = "RECORD_NOT_SERIALIZABLE"


class MissingTimestamp(JobError):
    """A record without a timestamp came to an operator that works with event time (rule 9)."""

    code = "MISSING_TIMESTAMP"


class SourceError(JobError):
    """A source could not be read."""

    code = "SOURCE_FAILED"


class SourceNotFound(SourceError):
    """A file or folder that a source reads does not exist."""

    code = "SOURCE_NOT_FOUND"


class SinkError(JobError):
    """A sink could not write or commit."""

    code = "SINK_FAILED"


class StateError(JobError):
    """State could not be read or written."""

    code = "STATE_UNREADABLE"


class StateDamaged(StateError):
    """A file of a checkpoint or savepoint is not what was written."""

    code = "STATE_DAMAGED"


class StateLost(StateError):
    """A process has ended in the middle of an epoch, before its changes were in a checkpoint."""

    code = "STATE_LOST"


class StateMismatch(StateError):
    """What is to be restored does not fit the program."""

    code = "STATE_MISMATCH"


class StateNotFound(StateError):
    """There is no checkpoint or savepoint to start from."""

    code = "STATE_NOT_FOUND"


class KeyClassNotFound(StateError):
    """A key of the state cannot be made again: its class is not there, or may not be used."""

    code = "KEY_CLASS_NOT_FOUND"


class StateNotTrusted(StateError):
    """Reading would run code that a file names, and nobody has said that it may."""

    code = "STATE_NOT_TRUSTED"


class StateNotSigned(StateError):
    """A file of a checkpoint or savepoint is not signed with the job's key."""

    code = "STATE_NOT_SIGNED"


class StateNotSerializable(StateError):
    """A value of a state cannot be written, or could not be read again."""

    code = "STATE_NOT_SERIALIZABLE"


class StorageAway(StateError, OSError):
    """The folder of a job is not there, as when a disk of the network is lost for a while."""

    code = "STORAGE_AWAY"


class CheckpointFailed(StateError):
    """A checkpoint or a savepoint could not be written, or not in the time that it has."""

    code = "CHECKPOINT_FAILED"


class NoCurrentKey(StateError):
    """Keyed state was used where there is no current key (rule 49)."""

    code = "NO_CURRENT_KEY"


class DependencyError(JobError):
    """A file, archive or package that the program depends on is missing or cannot be put in place."""

    code = "DEPENDENCY_FAILED"


class JobLocked(JobError):
    """Another driver holds the job's folder."""

    code = "JOB_LOCKED"


class LeadershipLost(JobLocked):
    """This driver was elected to run the job, and is not its leader any more."""

    code = "LEADERSHIP_LOST"


class EngineError(JobError):
    """Spark failed the job for a reason of its own."""

    code = "ENGINE_FAILED"


class JobCancelled(JobError):
    """The job was cancelled before its result was there."""

    code = "JOB_CANCELLED"


def _rebuild(code: str, what: str, hint: str | None, evidence: dict[str, Any]) -> MillstreamError:
    return _BY_CODE.get(code, MillstreamError)(what, hint=hint, **evidence)


def shortly(error: MillstreamError) -> MillstreamError:
    """An error as a program is to see it: Python shows the program's own line and what the error says, without the
    steps inside of Millstream, Spark and Java that led to it. They are in `whole`; what it came from is its
    `__context__`. If the variable MILLSTREAM_TRACEBACK is set, nothing is left out.

    >>> try:
    ...     raise SourceError("nothing to read") from OSError("disk gone")
    ... except SourceError as error:
    ...     shown_error = shortly(error)
    >>> "".join(traceback.format_exception(shown_error))
    'millstream.errors.SourceError: [SOURCE_FAILED] nothing to read\\n'
    >>> "OSError: disk gone" in shown_error.whole
    True
    """
    if os.environ.get("MILLSTREAM_TRACEBACK"):
        return error
    error.whole = error.whole or "".join(traceback.format_exception(error))
    if error.__cause__ is not None:
        error.__context__ = error.__cause__
    # Python shows no context either of an error that is raised from nothing.
    error.__cause__ = None
    return error.with_traceback(None)


_MARK = re.compile(r"\[millstream-error:([A-Za-z0-9+/=]+)\]")


def encode(error: MillstreamError) -> str:
    """The error as text that survives being embedded in any other text.

    >>> print(decode("Spark says: " + encode(SourceNotFound("no such file", path="/a"))))
    [SOURCE_NOT_FOUND] no such file
      path: /a
    """
    evidence = {name: shown(str(value)) for name, value in error.evidence.items()}
    body = json.dumps([error.code, error.what, error.hint, evidence])
    return f"[millstream-error:{base64.b64encode(zlib.compress(body.encode())).decode()}]"


def decode(text: str) -> MillstreamError | None:
    """The first error that `encode` put into `text`, or None."""
    match = _MARK.search(text)
    if match is None:
        return None
    code, what, hint, evidence = json.loads(zlib.decompress(base64.b64decode(match.group(1))))
    return _rebuild(code, what, hint, evidence)
