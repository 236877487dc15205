"""From an exception in generated code to an error a user can act on.

The line that raised says which operator it was and where its input is kept (`millstream.runtime.codegen.code`); the
iterator over the input says how many records are left, and so which one this is. Nothing is recorded while
records flow.
"""

from __future__ import annotations

import re
import traceback
from types import BuiltinFunctionType, FrameType, TracebackType
from typing import Any, NamedTuple

from millstream.errors import (
    JobError,
    KeySelectorError,
    MillstreamError,
    RecordNotSerializable,
    SinkError,
    SourceError,
    UserFunctionError,
    told,
)
from millstream.graph.operators import (
    FeedbackOp,
    FlatMapOp,
    MapOp,
    Operator,
    RollingOp,
    SinkFunctionOp,
    SinkOp,
)
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.in_operator import IN_OPERATOR
from millstream.runtime.base.text import shorten
from millstream.runtime.base.user_lines import _user_frames, user_line, user_traceback
from millstream.runtime.codegen.bad_records import is_guarded
from millstream.runtime.codegen.code import Location
from millstream.runtime.codegen.fields import misfit
from millstream.runtime.task.chain import Chain

__all__ = [
    "exit_of",
    "explain",
    "explain_call",
    "explain_decoding",
    "explain_source",
]

_SINKS = (SinkFunctionOp, SinkOp, FeedbackOp)


def explain(
    error: Exception, chain: Chain, remaining: int | None, position: str
) -> MillstreamError:
    """The error for an exception that left a chain. `position` may hold `{index}`, the record's number."""
    explained = _explained(error, chain, remaining, position)
    operator = explained.evidence.get("operator")
    if remaining is None and any(
        is_guarded(node) and node.name == operator for node in chain.nodes.values()
    ):
        explained.evidence["on_error"] = (
            "a policy is about records; this failed while a timer or a window was due, which has none"
        )
    return explained


def _explained(
    error: Exception, chain: Chain, remaining: int | None, position: str
) -> MillstreamError:
    raised_at = _generated_frame(error.__traceback__, chain.module.code.co_filename)
    where = position.replace("{index}", "?" if remaining is None else str(remaining))
    if isinstance(raised_at, _InOperator):
        return _of_operator(error, chain.nodes[raised_at.node], raised_at.below, where)
    if raised_at is None:
        return error if isinstance(error, MillstreamError) else _unlocated(error, chain)
    frame, line, below = raised_at
    location = chain.module.locations.get(line)
    if location is None:
        return _unlocated(error, chain)
    node = chain.nodes[location.node]
    record = frame.f_locals.get(location.variable, "<not kept>")
    if (
        isinstance(node.operator, RollingOp)
        and location.role == "run"
        and isinstance(error, TypeError | LookupError | AttributeError)
        and not _user_frames(below)
    ):
        error = misfit(node.operator, node.name, record, error)
    if isinstance(error, MillstreamError):
        # Errors of our own say what failed; add who and where.
        facts: dict[str, Any] = {"operator": node.name, **error.evidence}
        facts.setdefault("record", shorten(record))
        cause = error.__cause__
        facts.setdefault("line", user_line(below if cause is None else cause.__traceback__))
        facts["declared_at"] = location.declared_at or node.declared_at
        facts.setdefault("position", where)
        hint = error.hint
        if facts.get("value") == facts["record"]:
            del facts["value"]
        if hint is None and location.role == "type":
            hint = "return what the operator's output_type says, or change the output_type"
        if hint is None and location.role.startswith("key"):
            hint = "return what the key_type of key_by says, or change the key_type"
        return type(error)(error.what, hint=hint, **facts)
    return _by_role(error, location, node, below, shorten(record), where)


def explain_call(error: Exception, node: StreamNode, call: str) -> MillstreamError:
    """The error for `open`, `close` and other calls that have no record."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    facts: dict[str, Any] = {"operator": node.name, "line": user_line(below)}
    if isinstance(error, MillstreamError):
        facts |= {"declared_at": node.declared_at, **error.evidence}
        return type(error)(error.what, hint=error.hint, **facts)
    kind = SinkError if isinstance(node.operator, _SINKS) else UserFunctionError
    return kind(
        f"{call} of '{node.name}' raised {told(error)}",
        **facts,
        declared_at=node.declared_at,
        traceback=user_traceback(error, below),
    )


def explain_decoding(error: Exception, node: StreamNode) -> MillstreamError:
    """The error for records that were written but cannot be read."""
    return RecordNotSerializable(
        f"records sent to '{node.name}' cannot be read back",
        operator=node.name,
        declared_at=node.declared_at,
        cause=told(error),
        hint="make sure that the records' class can be pickled and unpickled",
    )


def explain_source(error: Exception, node: StreamNode, position: str) -> MillstreamError:
    """The error for a source that cannot be read."""
    if isinstance(error, MillstreamError):
        facts = {"source": node.name, "position": position, **error.evidence}
        return type(error)(error.what, hint=error.hint, **facts)
    below = error.__traceback__.tb_next if error.__traceback__ else None
    return SourceError(
        f"the source '{node.name}' raised {told(error)}",
        line=user_line(below),
        position=position,
        declared_at=node.declared_at,
        traceback=user_traceback(error, below),
    )


def _by_role(
    error: Exception,
    location: Location,
    node: StreamNode,
    below: TracebackType | None,
    record: str,
    position: str,
) -> MillstreamError:
    evidence: dict[str, Any] = {
        "operator": node.name,
        "line": user_line(below),
        "record": record,
        "position": position,
        "declared_at": location.declared_at or node.declared_at,
        "traceback": user_traceback(error, below),
    }
    raised = f"raised {told(error)}"
    returned = _not_iterable(error, node.operator) if below is None else None
    role, _, field = location.role.partition(" ")
    kind: type[JobError]
    match role:
        case "key" if field:
            kind = KeySelectorError
            problem = f"the record after '{node.name}' has no key {field}: {told(error)}"
            evidence["hint"] = "key_by with a name or a position needs that field in every record"
        case "key":
            kind, problem = KeySelectorError, f"the key selector after '{node.name}' {raised}"
            evidence["hint"] = (
                "the selector must give a key for every record; filter out those without one"
            )
        case "timestamp":
            kind, problem = UserFunctionError, f"the timestamp assigner of '{node.name}' {raised}"
            evidence["hint"] = "extract_timestamp must give a timestamp for every record"
        case "partition":
            kind, problem = UserFunctionError, f"the partitioner after '{node.name}' {raised}"
        case _ if isinstance(node.operator, _SINKS):
            kind, problem = SinkError, f"the sink '{node.name}' {raised}"
        case _ if returned is not None:
            kind = UserFunctionError
            problem = f"the function of '{node.name}' returned {returned}, which is not iterable"
            evidence["hint"] = (
                "flat_map must return an iterable: a list or a generator, [] for no records"
                if isinstance(node.operator, FlatMapOp)
                else "yield the records, or return a list of them, or None for no records"
            )
        case _:
            kind, problem = UserFunctionError, f"the function of '{node.name}' {raised}"
            evidence["hint"] = _about_none(error, node, record)
    return kind(problem, **evidence)


def _about_none(error: Exception, node: StreamNode, record: str) -> str | None:
    """Where a None may come from that a function did not expect."""
    if not isinstance(error, TypeError | AttributeError) or "NoneType" not in str(error):
        return None
    if record == "None":
        return "the record is None: does the function before it return what it makes?"
    if node.operator.keys:
        return "a state that was not written yet reads as None; for a number, `state.value() or 0`"
    return None


def _not_iterable(error: Exception, operator: Operator) -> str | None:
    """The type of a result that could not be iterated over; None if the error is another one."""
    match = re.fullmatch(r"'(.+)' object is not iterable", str(error))
    function = operator.user_function
    # A builtin leaves no trace when it raises, so the error may be its own.
    if match is None or isinstance(operator, MapOp) or not isinstance(error, TypeError):
        return None
    return None if isinstance(function, type | BuiltinFunctionType) else match.group(1)


def _unlocated(error: Exception, chain: Chain) -> MillstreamError:
    return JobError(
        f"'{chain.vertex.name}' failed: {told(error)}",
        traceback="".join(traceback.format_exception(error)),
    )


class _InOperator(NamedTuple):
    """Where time set something off in an operator that is not generated code."""

    node: int
    below: TracebackType | None


def _generated_frame(
    trace: TracebackType | None, filename: str
) -> tuple[FrameType, int, TracebackType | None] | _InOperator | None:
    """The innermost frame of generated code, its line, and the traceback below it."""
    frame: tuple[FrameType, int, TracebackType | None] | _InOperator | None = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == filename:
            frame = trace.tb_frame, trace.tb_lineno, trace.tb_next
        elif code.co_name.startswith(IN_OPERATOR):
            frame = _InOperator(int(code.co_name.removeprefix(IN_OPERATOR)), trace.tb_next)
        trace = trace.tb_next
    return frame


def _of_operator(
    error: Exception, node: StreamNode, below: TracebackType | None, position: str
) -> MillstreamError:
    """The error for what a timer or the end of a window set off."""
    facts: dict[str, Any] = {"operator": node.name, "line": user_line(below)}
    if isinstance(error, MillstreamError):
        facts |= {**error.evidence, "declared_at": node.declared_at}
        facts.setdefault("position", position)
        return type(error)(error.what, hint=error.hint, **facts)
    return UserFunctionError(
        f"the function of '{node.name}' raised {told(error)}",
        **facts,
        position=position,
        declared_at=node.declared_at,
        traceback=user_traceback(error, below),
    )


def exit_of(error: BaseException) -> JobError:
    """A function of the job called `exit`: that is the job's failure, not the client's end."""
    msg = f"the job was ended by {told(error)}"
    failure = JobError(msg, hint="raise an exception instead of calling exit() in a function")
    failure.__cause__ = error
    return failure
