"""Predicates that most retry strategies need, under PyFlink's module name."""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Ask again if there was no result.

    >>> empty_result_predicate([]), empty_result_predicate([1])
    (True, False)
    """
    return result is None or len(result) == 0


def has_exception_predicate(error: BaseException | None) -> bool:
    """Ask again after any exception.

    >>> has_exception_predicate(OSError("gone"))
    True
    """
    return error is not None


def exception_type_predicate(error: BaseException, expected_error_type: type[Any]) -> bool:
    """Ask again after an exception of one kind; bind the kind with `functools.partial` or a lambda.

    >>> exception_type_predicate(ConnectionError(), OSError)
    True
    """
    return isinstance(error, expected_error_type)
