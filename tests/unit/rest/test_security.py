"""Who may ask, and what for: names, origins, tokens, paths, limits. Each requirement on its own, without a job."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import logging
from pathlib import Path
from urllib.parse import unquote

import pytest

from millstream.common.configuration import Configuration
from millstream.errors import ConfigurationError
from millstream.rest import security, server
from millstream.rest.app import BODY_BYTES, REQUEST_SECONDS, RestApp
from millstream.rest.budget import BURST_SECONDS, SHARE, WAIT_SECONDS
from millstream.rest.jobs import KEPT
from millstream.rest.pages import FlinkPage, Served
from millstream.rest.routes import DEEPEST, MOST_NAMES, ROUTES, depth
from millstream.rest.server import make_app
from millstream.rest.settings import TOKEN_CHARACTERS, RestSettings, is_loopback, rest_settings
from millstream.rest.start import PORTS, listen
from tests.rest import PORT, Client, application

TOKEN = "kq3Zr0vT5nUe8yW1xC7bLd2GhJ9fPsA4mKoQiEtRvXz"
OWN = {"x-millstream": "1"}
JOB = "/jobs/" + "a" * 32


def token_file(folder, text=TOKEN, mode=0o600):
    file = folder / "token"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def configured(**options):
    return Configuration.from_dict(
        {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    )


# -- where it listens -------------------------------------------------------------------------------


def test_only_this_machine_by_default():
    settings = rest_settings(Configuration())
    assert settings.bind_address == "127.0.0.1"
    with listen(settings.bind_address, 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "some-host", "[::]"])
def test_elsewhere_needs_a_token(address, tmp_path):
    with pytest.raises(ConfigurationError, match="other machines") as refused:
        rest_settings(configured(rest__bind_address=address))
    assert "rest.authentication.token-file" in str(refused.value.hint)
    options = {"rest.bind-address": address, "rest.authentication.token-file": token_file(tmp_path)}
    settings = rest_settings(Configuration.from_dict(options))
    assert settings.token == TOKEN.encode()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_this_machine_needs_none(address):
    assert rest_settings(configured(rest__bind_address=address)).token is None
    assert is_loopback(address.strip("[]"))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_token_that_others_can_read_is_refused(mode, tmp_path):
    options = {"rest.authentication.token-file": token_file(tmp_path, mode=mode)}
    with pytest.raises(ConfigurationError, match="read by others") as refused:
        rest_settings(Configuration.from_dict(options))
    assert f"{mode:04o}" in str(refused.value)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("text", ["", "short", "a" * 42, "two words " * 10, "ü" * 60])
def test_a_token_that_can_be_guessed_is_refused(text, tmp_path):
    options = {"rest.authentication.token-file": token_file(tmp_path, text)}
    with pytest.raises(ConfigurationError, match="nobody can guess") as refused:
        rest_settings(Configuration.from_dict(options))
    assert not text or text not in str(refused.value)


def test_a_token_that_is_missing_is_refused(tmp_path):
    options = {"rest.authentication.token-file": str(tmp_path / "none")}
    with pytest.raises(ConfigurationError, match="cannot be read") as refused:
        rest_settings(Configuration.from_dict(options))
    assert str(tmp_path / "none") in str(refused.value)


def test_the_token_is_in_no_text(tmp_path, caplog):
    options = {"rest.authentication.token-file": token_file(tmp_path)}
    settings = rest_settings(Configuration.from_dict(options))
    logging.getLogger("millstream.rest").warning("it is %s", TOKEN)
    client = Client(make_app([], settings, PORT))
    answer = client.get(f"/{TOKEN}", authorization="Bearer wrong")
    assert answer.status == 401
    for text in (repr(settings), str(settings), caplog.text, answer.body.decode()):
        assert TOKEN not in text


# -- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_the_server_goes_by_these_names(host):
    assert Client(application()).get("/overview", host=f"{host}:{PORT}").status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:80",
        f"127.0.0.1.evil.example:{PORT}",
        f"10.0.0.1:{PORT}",
        f"localhost.:{PORT}",
        f"127.0.0.1:{PORT}@evil.example",
        f"0:{PORT}",
        f"2130706433:{PORT}",
        f"[::]:{PORT}",
        "",
        "\x00",
        None,
    ],
)
@pytest.mark.parametrize("path", ["/overview", "/", "/health", "/openapi.json", "/nothing"])
def test_and_by_no_other(host, path):
    """A page whose name was made to lead here (DNS rebinding) reads nothing."""
    answer = Client(application()).request("GET", path, {"host": host})
    assert answer.status == 403
    assert "overview" not in answer.body.decode()


def test_two_names_are_none():
    own = (b"host", f"127.0.0.1:{PORT}".encode())
    answer = Client(application()).request("GET", "/overview", {"host": None}, raw=[own, own])
    assert answer.status == 403


def test_who_listens_everywhere_goes_by_any_number_and_no_name():
    client = Client(application(bind_address="0.0.0.0", token=TOKEN.encode()))
    token = {"authorization": f"Bearer {TOKEN}"}
    assert client.request("GET", "/jobs", {"host": f"10.1.2.3:{PORT}", **token}).status == 200
    assert client.request("GET", "/jobs", {"host": f"evil.example:{PORT}", **token}).status == 403


def test_further_names_are_allowed_by_the_configuration():
    client = Client(application(allowed_hosts=("jobs.example", "other.example:8443")))
    for host in ("jobs.example", f"jobs.example:{PORT}", "other.example:8443"):
        assert client.get("/jobs", host=host).status == 200
    assert client.get("/jobs", host="other.example").status == 403


# -- tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer " + "ÿ" * 43,
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs"),
        ("HEAD", "/jobs"),
        ("GET", "/v1/jobs"),
        ("GET", "/v1/health"),
        ("GET", "/openapi.json"),
        ("PATCH", JOB),
        ("POST", "/health"),
        ("GET", "/no"),
    ],
)
def test_with_a_token_every_request_needs_it(given, method, path):
    client = Client(application(token=TOKEN.encode()))
    answer = client.request(method, path, {"authorization": given, **OWN})
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert b"jobs" not in answer.body


def test_who_has_the_token_is_answered():
    client = Client(application(token=TOKEN.encode()))
    for scheme in ("Bearer", "bearer"):
        assert client.get("/jobs", authorization=f"{scheme} {TOKEN}").status == 200
    # In an address it is in logs and histories.
    assert client.get(f"/jobs?access_token={TOKEN}").status == 401


def test_whether_it_is_up_needs_no_token_and_says_nothing_else():
    answer = Client(application(token=TOKEN.encode())).get("/health")
    assert (answer.status, answer.json) == (200, {"status": "up"})


def test_the_dashboards_own_files_need_no_token_and_hold_no_data():
    """A browser has to have them before it can send one."""
    rules = security.RequestRules(RestSettings(token=TOKEN.encode()), PORT)
    pages = {"/": Served(b"page", "text/html"), "/assets/app.js": Served(b"js", "text/javascript")}
    client = Client(RestApp(None, rules, pages))
    assert [client.get(path).status for path in ("/", "/assets/app.js", "/assets/no.js")] == [
        200,
        200,
        401,
    ]
    assert client.request("POST", "/", OWN).status == 401


def test_tokens_are_compared_in_constant_time():
    assert "compare_digest" in inspect.getsource(security.RequestRules._check_token)


# -- changes ----------------------------------------------------------------------------------------

CHANGES = [(e.method, e.path.replace(":jobid", "a" * 32)) for e in ROUTES if e.method != "GET"]
FOREIGN = [
    {"origin": "http://evil.example"},
    {"origin": f"http://evil.example:{PORT}"},
    {"origin": "null"},
    {"origin": ""},
    {"origin": f"file://127.0.0.1:{PORT}"},
    {"origin": f"http://127.0.0.1:{PORT + 1}"},
    {"origin": "http://[::1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]


def test_what_changes_something_is_known():
    assert {method for method, _ in CHANGES} == {"PATCH", "POST", "PUT"}


@pytest.mark.parametrize("foreign", FOREIGN, ids=str)
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_no_change_from_another_page(change, foreign):
    answer = Client(application()).request(
        change[0], change[1], headers={**OWN, **foreign}, body=b"{}"
    )
    assert answer.status == 403


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_no_change_that_a_form_could_send(change, kind):
    answer = Client(application()).request(
        change[0], change[1], headers={"content-type": kind}, body=b"{}"
    )
    assert answer.status == 403
    assert "X-Millstream" in answer.body.decode()


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize(
    "headers",
    [
        OWN,
        {"content-type": "application/json"},
        {"content-type": "application/json; charset=utf-8", "origin": f"http://127.0.0.1:{PORT}"},
        {**OWN, "origin": f"http://localhost:{PORT}", "sec-fetch-site": "same-origin"},
    ],
    ids=str,
)
def test_a_change_of_our_own_comes_to_the_job(change, headers):
    """There is none of that id, and that is all that stops it."""
    answer = Client(application()).request(change[0], change[1], headers=headers, body=b"{}")
    assert (answer.status, answer.json["errors"]) == (
        404,
        ["there is no job of this id, or no more"],
    )


def test_no_other_page_is_allowed_to_read():
    client = Client(application())
    ask = {"origin": "http://evil.example", "access-control-request-method": "PATCH"}
    for method in ("GET", "OPTIONS"):
        answer = client.request(method, "/jobs", {**ask, **OWN})
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.request("OPTIONS", "/jobs", ask).status == 403


@pytest.mark.parametrize("path", ["/", "/jobs", "/no", "/openapi.json", "/assets/app.js"])
def test_every_answer_says_what_a_browser_may_do(path):
    headers = Client(application()).get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


# -- Flink's page -----------------------------------------------------------------------------------


def flink_page(tmp_path):
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<title>page</title>")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "web" / "link.html").symlink_to(tmp_path / "secret")
    return FlinkPage(str(tmp_path))


CANCEL = f"{JOB}/yarn-cancel"
OF_PAGE = {"referer": f"http://127.0.0.1:{PORT}/flink/"}


def test_cancel_by_get_is_not_there_without_flinks_page():
    client = Client(application())
    for path in (CANCEL, f"/v1{CANCEL}", f"/flink{CANCEL}"):
        answer = client.request("GET", path, OF_PAGE)
        assert (answer.status, answer.json) == (404, {"message": "there is nothing at this path"})


def test_cancel_by_get_only_from_a_page_of_this_server(tmp_path):
    client = Client(application(flink_page=flink_page(tmp_path)))
    assert client.request("GET", f"/flink{CANCEL}", OF_PAGE).json["errors"] == [
        "there is no job of this id, or no more"
    ]
    assert client.request("GET", CANCEL, OF_PAGE).status == 404
    for headers in (
        {},
        {"referer": "http://evil.example/flink/"},
        {"referer": f"http://evil.example/?http://127.0.0.1:{PORT}/flink/"},
        *({**OF_PAGE, **foreign} for foreign in FOREIGN if foreign.get("origin") != ""),
    ):
        assert client.request("GET", f"/flink{CANCEL}", headers).status == 403, headers


def test_flinks_page_has_the_api_below_it_and_a_policy_of_its_own(tmp_path):
    client = Client(application(flink_page=flink_page(tmp_path)))
    page = client.get("/flink/")
    assert (page.status, page.body) == (200, b"<title>page</title>")
    line = base64.b64encode(hashlib.sha256(b"this.media='all'").digest()).decode()
    assert f"'unsafe-hashes' 'sha256-{line}'" in page.headers["content-security-policy"]
    assert client.get("/flink").headers["location"] == "/flink/"
    assert client.get("/flink/jobs/overview").json == {"jobs": []}
    assert client.get("/flink/v1/jobs").json == {"jobs": []}
    assert client.get("/flink/link.html").status == 404


def test_a_page_that_is_none_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.jar"):
        with pytest.raises(ConfigurationError, match="web page is not there"):
            FlinkPage(str(path))
    broken = tmp_path / "broken.jar"
    broken.write_bytes(b"no zip")
    with pytest.raises(ConfigurationError, match="web page is not there"):
        FlinkPage(str(broken))


# -- paths ------------------------------------------------------------------------------------------

_UP = ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%252f", "%252e%252e%252f", "..\\", "..%5c"]
_UP += ["..%c0%af", "%c0%ae%c0%ae/", "..%ef%bc%8f", "....//", "..;/", "..%00/", "./.././", "..%01/"]
_ROOTS = ["/assets/", "/flink/", "/jobmanager/logs/", "/taskmanagers/a/logs/", "/v1/jars/"]
PAYLOADS = [f"{root}{up * 6}etc/passwd" for root in _ROOTS for up in _UP]
PAYLOADS += [
    "//etc/passwd",
    "/etc/passwd",
    "/file:///etc/passwd",
    "/assets//etc/passwd",
    "/assets/%2fetc%2fpasswd",
    "/jobmanager/logs/..%252f..%252f..%252f..%252fetc%252fpasswd",  # CVE-2020-17519
    "/jars/upload",  # CVE-2020-17518
    "/jars/..%2f..%2fetc%2fpasswd/plan",
    "/jobmanager/logs/millstream.log/../../../etc/passwd",
    "/jobmanager/logs/millstream.log%00.txt",
    "/assets/index.html%00.png",
    "/assets/__init__.py",
    "/assets/../rest/settings.py",
    "/flink/../secret",
    "/flink/web/index.html",
    "/jobs/../../../../etc/passwd",
    f"{JOB}/vertices/..%2f..%2f",
    f"{JOB}/savepoints/../../../../etc/passwd",
    "\\etc\\passwd",
    "/C:\\windows\\win.ini",
    "/proc/self/environ",
]


@pytest.fixture
def everything(tmp_path):
    return Client(application(flink_page=flink_page(tmp_path)))


def test_there_are_enough_payloads():
    assert len(set(PAYLOADS)) >= 60


@pytest.mark.parametrize("path", PAYLOADS)
def test_no_path_leads_out(path, everything):
    """As it is sent, decoded once, as the server does, and decoded twice, as nobody should."""
    for given in {path, unquote(path), unquote(unquote(path))}:
        answer = everything.get(given.replace("?", "%3f"))
        assert answer.status in (400, 404), given
        for secret in (b"root:", b"secret", b"import", b"PATH="):
            assert secret not in answer.body


def test_files_are_in_a_table():
    """What is served was read at the start: the application never opens a file."""
    pages = {"/": Served(b"page", "text/html"), "/assets/app.js": Served(b"js", "text/javascript")}
    rules = security.RequestRules(RestSettings(), PORT)
    client = Client(RestApp(None, rules, pages))
    assert client.get("/").body == b"page"
    assert client.get("/assets/app.js").headers["content-type"] == "text/javascript"
    assert client.get("/assets/").status == 404
    assert "open(" not in inspect.getsource(security) + inspect.getsource(RestApp)


# -- limits -----------------------------------------------------------------------------------------

POST = ("POST", f"{JOB}/savepoints")


def test_a_body_has_an_end():
    client = Client(application())
    announced = {**OWN, "content-length": str(BODY_BYTES + 1)}
    assert client.request(*POST, announced, b"").status == 413
    assert client.request(*POST, {**OWN, "content-length": "9" * 30}, b"").status == 413
    assert client.request(*POST, {**OWN, "content-length": "-1"}, b"").status == 413
    parts = [b"x" * 65536] * (BODY_BYTES // 65536 + 1)
    refused = client.request(*POST, OWN, parts)
    assert (refused.status, refused.headers["connection"]) == (413, "close")


def test_json_has_a_depth(monkeypatch):
    assert depth(b"[" * 100) == 100
    body = b'{"target-directory": ' + b"[" * DEEPEST + b"]" * DEEPEST + b"}"
    call = type("call", (), {"body": body})
    from millstream.rest.control import SavepointBody
    from millstream.rest.routes import Call
    from millstream.rest.security import Refused

    with pytest.raises(Refused, match="nested deeper"):
        Call.read(call, SavepointBody)
    with pytest.raises(Refused, match="cannot be read"):
        Call.read(type("call", (), {"body": body[:30]}), SavepointBody)


def test_a_body_that_does_not_come_is_not_waited_for():
    app = application()
    app._seconds = 0.05

    async def ask():
        never = asyncio.Event()

        async def receive():
            await never.wait()

        sent = []

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": POST[1],
            "query_string": b"",
            "headers": [(b"host", f"127.0.0.1:{PORT}".encode()), (b"x-millstream", b"1")],
            "client": None,
        }
        await app(scope, receive, send)
        return sent[0]["status"]

    assert asyncio.run(ask()) == 408


def test_the_document_names_the_limits_as_they_are():
    text = " ".join((Path(__file__).parents[3] / "docs" / "rest.md").read_text().split())
    for said in (
        f"{server.HEADER_BYTES >> 10} KiB of headers within {server.HEADER_SECONDS:.0f} s",
        f"{BODY_BYTES >> 20} MiB of body",
        f"JSON {DEEPEST} deep",
        f"{REQUEST_SECONDS:.0f} s until the answer is sent",
        f"{MOST_NAMES:,} names or entries",
        f"{server.CONNECTIONS} connections at once",
        f"{SHARE:.0%} of one core",
        f"{BURST_SECONDS:.0f} s of it at once",
        f"{WAIT_SECONDS:.0f} s for its turn",
        f"{TOKEN_CHARACTERS} characters or more",
        f"the last {KEPT} that have ended",
        f"of which {PORTS} are tried",
    ):
        assert said in text, said


def test_what_fails_says_nothing_of_how(monkeypatch, caplog):
    app = application()
    monkeypatch.setattr(app, "_services", None)
    answer = Client(app).get("/jobs")
    assert answer.status == 500
    assert answer.json == {"errors": ["the request failed; the driver's log says why"]}
    assert "Traceback" in caplog.text
