"""What is shown of a user's program, settings and data: without secrets, and without what commands a terminal.

One function, `shown`, for everything that people or files get to see: errors, logs, source lines, plans, progress. It
takes out user and password of URLs, values of names that speak of secrets (`password=...`, `"api.key": "..."`,
`set("x.secret", "...")`), bearer tokens, and every value that was given to `remember`; and it writes control characters
as `\\x1b`. Records that a job writes to its sinks, `print()` among them, are data and stay as they are.
"""

from __future__ import annotations

import logging
import re

__all__ = ["get_logger", "is_secret_name", "plain", "remember", "shown", "without_secrets"]

_NAME = (
    r"(?:password|passwd|passphrase|pwd|secret|token(?!s|i[sz])|api[-_.]?key|access[-_.]?key|account[-_.]?key|credential|"
    r"private[-_.]?key|jaas|(?<![A-Za-z])sas(?![A-Za-z]))"
)
_IS_SECRET = re.compile(_NAME, re.IGNORECASE)
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?"
# A name, a sign, a value. After a comma only if the name is quoted: the arguments of a call.
_ASSIGNED = re.compile(
    rf"""(?P<name>(?<![\w.-])[\w.-]*{_NAME}[\w.-]*)
         (?P<sign>[\"']\s*,\s*|[\"']?\]?\s*(?:=>|=(?!=)|:(?!:|//))\s*)
         (?P<value>[rRbBfFuU]{{0,2}}(?:{_QUOTED})|[^\s,;)&}}\]'\"]+)""",
    re.IGNORECASE | re.VERBOSE,
)
# The same where a path or an address quotes signs, as the folder of a job does with its name: to the next part.
_IN_PATHS = re.compile(
    rf"(?P<name>{_NAME}[\w.-]*%3[AD])(?:[^\s%/&;,'\"]|%(?!2[06CF]|3B))+", re.IGNORECASE
)
_USER_INFO = re.compile(r"(?<=://)[^\s'\"/@:]*:(?!\.\.\.@)[^\s'\"]+(?=@)")
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
# Control characters but tab and new line; and those that turn the direction of text, which can make a line lie.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HIDDEN = "***"
_SHORTEST = 6

_remembered: dict[str, re.Pattern[str]] = {}


def is_secret_name(name: str) -> bool:
    """True for the name of a setting whose value nobody is to see.

    >>> is_secret_name("spark.hadoop.fs.s3a.secret.key"), is_secret_name("parallelism.default")
    (True, False)
    """
    return _IS_SECRET.search(name) is not None


def remember(secret: str | None) -> None:
    """From now on take this value out wherever it stands, whatever stands before it. Not one that may be an ordinary
    word: messages would lose it wherever they use it, and say what the password is."""
    if secret and len(secret) >= _SHORTEST and not secret.isalpha():
        _remembered[secret] = re.compile(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])")


def without_secrets(text: str) -> str:
    """A text without passwords and the like.

    >>> without_secrets("postgresql://ann:hunter2@db/shop")
    'postgresql://***@db/shop'
    >>> without_secrets('set_dsn("host=db password=hunter2 user=ann")')
    'set_dsn("host=db password=*** user=ann")'
    >>> without_secrets('set_string("s3.secret-key", "abc")')
    'set_string("s3.secret-key", "***")'
    """
    for secret, pattern in sorted(_remembered.items(), key=lambda entry: -len(entry[0])):
        if secret in text:
            text = pattern.sub(_HIDDEN, text)
    text = _USER_INFO.sub(_HIDDEN, text)
    text = _ASSIGNED.sub(_hide, text)
    text = _IN_PATHS.sub(rf"\g<name>{_HIDDEN}", text)
    return _BEARER.sub(rf"\1 {_HIDDEN}", text)


def _hide(match: re.Match[str]) -> str:
    value = match["value"]
    if value.strip("\"'") == "...":
        # An example in a hint.
        return match.group()
    quote = next((mark for mark in value[:3] if mark in "\"'"), "")
    closed = quote if value.endswith(quote) else ""
    return f"{match['name']}{match['sign']}{quote}{_HIDDEN}{closed}"


def plain(text: str) -> str:
    r"""A text that a terminal shows and does not obey.

    >>> print(plain("count\x1b[2J words"))
    count\x1b[2J words
    """
    return _CONTROL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def shown(text: str) -> str:
    """A text as people may see it."""
    return plain(without_secrets(text))


class _Shown(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = shown(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            # Formatters take this, if it is there.
            record.exc_text = shown(logging.Formatter().formatException(record.exc_info))
        return True


_filter = _Shown()


def get_logger(name: str) -> logging.Logger:
    """A logger whose lines are as people may see them."""
    logger = logging.getLogger(name)
    logger.addFilter(_filter)
    return logger
