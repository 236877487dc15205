"""Files on S3 that appear at a moment one chooses: uploads in parts, which only their completion shows.

S3 has no rename. An upload in parts is what it has instead: the parts are durable when they are sent, nobody sees them
before the upload is completed, and it is completed once, by whoever knows its id. PyArrow and fsspec hide this, so it
is asked for with botocore, which s3fs brings along.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from millstream.errors import RuntimeUnusable
from millstream.storage.urls import DataUrl

__all__ = ["S3Address", "S3Upload", "S3Uploads"]

_PART = 8 << 20  # all but the last must have 5 MB, and there may be 10,000
_SAME_SIZE = 1_000  # after so many parts they are twice as long
_ATTEMPTS = 8  # of a request, about half a minute in all
_GONE = ("NoSuchUpload", "NoSuchKey", "404", "NotFound")
_DENIED = (
    "403",
    "AccessDenied",
    "ExpiredToken",
    "Forbidden",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
)


@dataclass(frozen=True)
class S3Address:
    """What a URL says: the same words as in URLs of checkpoints, which PyArrow reads.

    >>> address = S3Address.parse("s3://bucket/out?endpoint_override=localhost:9000&scheme=http")
    >>> address.bucket, address.prefix, address.endpoint
    ('bucket', 'out', 'http://localhost:9000')
    """

    bucket: str
    prefix: str
    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    region: str | None = None

    @staticmethod
    def parse(url: str) -> S3Address:
        """The parts of a URL. The path is taken as it is spelled, as sources take it: a key may hold any sign."""
        parts = DataUrl.parse(url)
        bucket, _, prefix = parts.path.partition("/")
        key, _, secret = parts.user.removesuffix("@").partition(":")
        asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        endpoint = asked.get("endpoint_override")
        if endpoint is not None and "://" not in endpoint:
            endpoint = f"{asked.get('scheme', 'https')}://{endpoint}"
        return S3Address(
            bucket=bucket,
            prefix=prefix.strip("/"),
            key=unquote(key) if key else None,
            secret=unquote(secret) if secret else None,
            endpoint=endpoint,
            region=asked.get("region"),
        )


class S3Uploads:
    """Uploads into one bucket; can be pickled, and connects when it is used."""

    def __init__(self, url: str) -> None:
        self._address = S3Address.parse(url)

    def begin(self, name: str) -> S3Upload:
        """A new upload; `name` is below the URL's path."""
        key = self._key(name)
        answer = self._ask("create_multipart_upload", Key=key)
        upload = answer["UploadId"]
        return S3Upload(functools.partial(self._ask, Key=key, UploadId=upload), upload)

    def complete(self, name: str, token: str) -> bool:
        """Show what was uploaded, if it is not shown; False if it is neither waiting nor there."""
        key, (upload, tags) = self._key(name), json.loads(token)
        parts = [{"PartNumber": n, "ETag": tag} for n, tag in enumerate(tags, 1)]
        try:
            # Asked first: a completion that is repeated may be answered as if it were the first.
            self._ask("list_parts", Key=key, UploadId=upload, MaxParts=1)
            self._ask(
                "complete_multipart_upload",
                Key=key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
            )
        except FileNotFoundError:
            return self.exists(name)
        return True

    def exists(self, name: str) -> bool:
        """True if a file can be seen."""
        try:
            self._ask("head_object", Key=self._key(name))
        except FileNotFoundError:
            return False
        return True

    def abort(self, name: str, token: str) -> None:
        """Forget an upload."""
        self._abort(self._key(name), json.loads(token)[0])

    def abort_all(self, folder: str, chosen: Callable[[str], bool]) -> None:
        """Forget the uploads directly in a folder whose names are chosen."""
        prefix = f"{self._key(folder)}/".lstrip("/")
        for key, upload in list(self._waiting(prefix)):
            name = key.removeprefix(prefix)
            if "/" not in name and chosen(name):
                self._abort(key, upload)

    def _abort(self, key: str, upload: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._ask("abort_multipart_upload", Key=key, UploadId=upload)

    def _waiting(self, prefix: str) -> Iterator[tuple[str, str]]:
        after: dict[str, str] = {}
        while True:
            answer = self._ask("list_multipart_uploads", Prefix=prefix, **after)
            for found in answer.get("Uploads", ()):
                yield found["Key"], found["UploadId"]
            if not answer.get("IsTruncated"):
                return
            after = {
                "KeyMarker": answer["NextKeyMarker"],
                "UploadIdMarker": answer["NextUploadIdMarker"],
            }

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._address.prefix, name) if part)

    def _ask(self, operation: str, **arguments: Any) -> Any:
        """One request; what the server refuses is an OSError that says why."""
        client, botocore = _client(self._address, os.getpid()), _botocore()
        try:
            return getattr(client, operation)(Bucket=self._address.bucket, **arguments)
        except botocore.exceptions.ClientError as error:
            said = error.response.get("Error", {})
            code = str(said.get("Code", ""))
            text = f"S3 answers {code}: {said.get('Message', '')}"
            if code == "NoSuchBucket":
                msg = f"there is no bucket {self._address.bucket}"
                raise OSError(msg) from None
            if code in _GONE:
                raise FileNotFoundError(text) from None
            if code in _DENIED:
                raise PermissionError(f"{text} (check the credentials and their rights)") from None
            raise OSError(text) from error
        except botocore.exceptions.NoCredentialsError:
            msg = "no credentials for S3 were found (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"
            raise PermissionError(msg) from None
        except botocore.exceptions.BotoCoreError as error:
            raise ConnectionError(f"S3 cannot be reached: {error}") from error


class S3Upload(io.RawIOBase):
    """A stream into an upload. What was written is durable after `finish`, and visible after `S3Uploads.complete`."""

    def __init__(self, ask: Callable[..., Any], upload: str) -> None:
        self._request = ask
        self._upload = upload
        self._buffer = bytearray()
        self._tags: list[str] = []
        self._sent = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent + len(self._buffer)

    def write(self, data: Any) -> int:
        self._buffer += data
        if len(self._buffer) >= _PART << (len(self._tags) // _SAME_SIZE):
            self._send()
        return len(data)

    def _send(self) -> None:
        body, self._buffer = bytes(self._buffer), bytearray()
        answer = self._request("upload_part", PartNumber=len(self._tags) + 1, Body=body)
        self._tags.append(answer["ETag"])
        self._sent += len(body)

    def finish(self) -> str:
        """Send what is left; what `complete` needs to know."""
        if self._buffer or not self._tags:
            self._send()
        self.close()
        return json.dumps([self._upload, self._tags])

    def discard(self) -> None:
        """Forget what was written, and the upload."""
        self._buffer.clear()
        with contextlib.suppress(OSError):
            self._request("abort_multipart_upload")
        self.close()


def _botocore() -> Any:
    try:
        import botocore
        import botocore.config
        import botocore.exceptions
        import botocore.session
    except ImportError:
        raise RuntimeUnusable(
            "files are written to S3 with botocore, which is not installed",
            hint="pip install 'millstream[s3]', on every machine of the job",
        ) from None
    return botocore


@functools.cache
def _loader() -> Any:
    """What botocore knows of S3: a megabyte of JSON, read once and not for every bucket."""
    import botocore.loaders

    return botocore.loaders.create_loader()


@functools.lru_cache(maxsize=16)
def _client(address: S3Address, process: int) -> Any:
    """A client, one per process: what a fork has copied of its connections is the parent's."""
    botocore = _botocore()
    own = "AWS_MAX_ATTEMPTS" in os.environ or "AWS_RETRY_MODE" in os.environ
    config = botocore.config.Config(
        connect_timeout=10,
        retries=None if own else {"mode": "standard", "max_attempts": _ATTEMPTS},
        # Servers that are not Amazon's have no host per bucket.
        s3={"addressing_style": "path"} if address.endpoint or _endpoint_is_set() else None,
    )
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader())
    return session.create_client(
        "s3",
        region_name=address.region,
        endpoint_url=address.endpoint,
        aws_access_key_id=address.key,
        aws_secret_access_key=address.secret,
        config=config,
    )


def _endpoint_is_set() -> bool:
    return any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"))
