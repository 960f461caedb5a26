"""SGLang's HTTP API over the simulated scheduler, from the moment it listens until SIGTERM has drained it."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from . import metrics
from .answers import Internal, Native, OpenAI
from .http import Connection
from .scheduler import Refused
from .start import leave

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from .http import Request
    from .log import Log
    from .loop import Loop
    from .profile import Profile, Version
    from .scheduler import Scheduler, Sink

    Handler = Callable[[Connection, Request], None]

TEXT = "text/plain; charset=utf-8"
DEFAULT_TOKENS = 128
WARMUP_PROMPT, WARMUP_TOKENS = 28, 8
DRAIN_POLL_S = 5.0
"""SGLang looks every 5 s whether a SIGTERM has come and whether its requests have ended."""


class BadRequest(Exception):
    """The request cannot be served; the text says why."""


class Server:
    """Listens and answers. `fields` are the resolved server arguments."""

    def __init__(
        self,
        loop: Loop,
        log: Log,
        profile: Profile,
        version: Version,
        scheduler: Scheduler,
        fields: dict[str, Any],
        *,
        crash_text: str,
        time_scale: float,
        startup_scale: float,
        pool_tokens: int,
    ) -> None:
        self._loop = loop
        self._log = log
        self._profile = profile
        self._version = version
        self._scheduler = scheduler
        self._fields = fields
        self._crash_text = crash_text
        self._time_scale = time_scale
        self._startup_scale = startup_scale
        self._pool = pool_tokens
        self._model = fields.get("served_model_name") or fields["model_path"]
        self._key = fields.get("api_key")
        self._ready = False
        self._draining = False
        self._routes = self._table()

    # --- life ---

    def listen(self) -> None:
        """Bind, as uvicorn does after everything else; a taken port ends it with status 3, as there."""
        host, port = self._fields["host"], self._fields["port"]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(2048)
        except OSError as error:
            self._log.uvicorn(
                f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
                f"({host!r}, {port}): {(error.strerror or '').lower()}"
            )
            self._log.uvicorn("INFO:     Waiting for application shutdown.")
            self._log.uvicorn("INFO:     Application shutdown complete.")
            leave(self._log, (), 3)
        listener.setblocking(False)
        self._loop.read(listener.fileno(), lambda: self._accept(listener))
        self._log.uvicorn(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        self._handle_signals()
        self._scheduler.on_crash = self._crash

    def warm_up(self) -> None:
        """One request of its own; after it the server says that it is ready."""
        peer = f"{self._fields['host']}:{self._fields['port'] ^ 1}"
        self._log.uvicorn(f'INFO:     {peer} - "GET /model_info HTTP/1.1" 200 OK')

        def ready() -> None:
            self._scheduler.forget()
            self._log.uvicorn(f'INFO:     {peer} - "POST /v1/chat/completions HTTP/1.1" 200 OK')
            self._ready = True
            self._log.main("The server is fired up and ready to roll!")

        self._scheduler.submit(
            [f"warm-up {i}" for i in range(WARMUP_PROMPT)],
            WARMUP_TOKENS,
            Internal(lambda: self._loop.at(time.monotonic(), ready)),
        )

    def _handle_signals(self) -> None:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda number, frame: self._terminate())
        signal.signal(signal.SIGINT, lambda number, frame: self._terminate())
        self._loop.read(reader.fileno(), lambda: reader.recv(64))
        self._wakeup = writer  # kept open

    def _terminate(self) -> None:
        if self._draining:
            return
        self._draining = True
        for line in self._version.serve.sigterm:
            self._log.main(line)
        self._loop.at(time.monotonic() + DRAIN_POLL_S / 2 * self._startup_scale, self._drain)

    def _drain(self) -> None:
        ids = [generation.id for generation in self._scheduler.running]
        self._log.main(
            f"Gracefully exiting... Remaining number of requests {len(ids)}. "
            f"Remaining requests remaining_rids={ids}."
        )
        if ids:
            self._loop.at(time.monotonic() + DRAIN_POLL_S * self._startup_scale, self._drain)
        else:
            leave(self._log, (), self._version.serve.sigterm_exit)

    def _crash(self) -> None:
        self._log.raw(self._crash_text)
        leave(self._log, self._version.quit_serving, -9)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        Connection(self._loop, sock, self._answer, self._log.uvicorn)

    # --- requests ---

    def _table(self) -> dict[tuple[str, str], Handler]:
        get: dict[str, Handler] = {
            "/health": self._health,
            "/health_generate": self._health,
            "/model_info": self._model_info,
            "/get_model_info": self._model_info,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
            "/v1/models": self._models,
            "/flush_cache": self._flush,
        }
        if self._fields.get("enable_metrics"):
            get["/metrics"] = self._metrics
        post: dict[str, Handler] = {
            "/generate": self._generate,
            "/v1/completions": self._completions,
            "/v1/chat/completions": self._chat,
            "/flush_cache": self._flush,
        }
        table = {("GET", path): handler for path, handler in get.items()}
        return table | {("POST", path): handler for path, handler in post.items()}

    def _answer(self, connection: Connection, request: Request) -> None:
        if self._key and request.headers.get("authorization") != f"Bearer {self._key}":
            connection.reply_json({"error": "Unauthorized"}, 401)
            return
        handler = self._routes.get((request.method, request.path))
        if handler is None:
            exists = any(path == request.path for _, path in self._routes)
            detail = "Method Not Allowed" if exists else "Not Found"
            connection.reply_json({"detail": detail}, 405 if exists else 404)
            return
        try:
            handler(connection, request)
        except (BadRequest, Refused) as error:
            said = {"message": str(error), "type": "Bad Request", "param": None, "code": 400}
            connection.reply_json({"error": said}, 400)

    def _health(self, connection: Connection, request: Request) -> None:
        """Generates a token, and so takes a second of the simulated clock."""
        if not self._ready or self._draining:
            connection.reply(503)
        elif not self._scheduler.frozen:
            self._loop.at(time.monotonic() + self._time_scale, lambda: connection.reply(200))

    def _model_info(self, connection: Connection, request: Request) -> None:
        path = self._fields["model_path"]
        connection.reply_json(
            {
                "model_path": path,
                "tokenizer_path": self._fields.get("tokenizer_path") or path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "has_image_understanding": True,
                "has_audio_understanding": False,
                "model_type": self._profile.model_type,
                "architectures": [self._profile.architecture],
            }
        )

    def _server_info(self, connection: Connection, request: Request) -> None:
        if self._scheduler.frozen:
            return
        counters = self._scheduler.counters
        state: dict[str, Any] = {
            "last_gen_throughput": counters.throughput,
            "effective_max_running_requests_per_dp": self._fields["max_running_requests"],
        }
        if counters.accept_length:
            state["avg_spec_accept_length"] = counters.accept_length
        connection.reply_json(
            self._fields
            | {
                "status": "ready" if self._ready else "starting",
                "max_total_num_tokens": self._pool,
                "internal_states": [self._fields | state],
                "version": self._version.version,
                "simulated": True,
            }
        )

    def _models(self, connection: Connection, request: Request) -> None:
        model = {"id": self._model, "object": "model", "created": int(time.time()), "owned_by": "sglang"}
        connection.reply_json({"object": "list", "data": [model | {"root": self._model, "parent": None}]})

    def _flush(self, connection: Connection, request: Request) -> None:
        """With `timeout` it waits that long, in real seconds, for the requests that run."""
        deadline = time.monotonic() + float(request.query.get("timeout") or 0)

        def attempt() -> None:
            if self._scheduler.frozen:
                return
            if self._scheduler.flush():
                said = "Cache flushed.\nPlease check backend logs for more details. "
                said += "(When there are running or waiting requests, the operation will not be performed.)\n"
                connection.reply(200, said.encode(), TEXT)
            elif time.monotonic() < deadline:
                self._loop.at(time.monotonic() + 0.01, attempt)
            else:
                connection.reply(400, b"Flush cache failed.\n", TEXT)

        attempt()

    def _metrics(self, connection: Connection, request: Request) -> None:
        names = self._version.serve.metrics
        body = metrics.text(self._scheduler, self._model, names, self._pool)
        connection.reply(200, body.encode(), "text/plain; version=1.0.0; charset=utf-8")

    def _generate(self, connection: Connection, request: Request) -> None:
        body = _json(request)
        prompt: Sequence[Hashable]
        if body.get("input_ids") is not None:
            prompt = _ids(body["input_ids"], self._profile.vocabulary)
        else:
            prompt = _words(body.get("text"), "Either text, input_ids or input_embeds should be provided.")
        sampling = body.get("sampling_params") or {}
        if not isinstance(sampling, dict):
            raise BadRequest("the simulated host takes one prompt a request")
        stream = bool(body.get("stream"))
        timed = bool(self._fields.get("enable_metrics"))
        sink = Native(connection, self._scheduler, self._version.serve, stream=stream, timed=timed)
        self._submit(connection, prompt, sampling.get("max_new_tokens"), sink, stream=stream)

    def _completions(self, connection: Connection, request: Request) -> None:
        body = _json(request)
        given = body.get("prompt")
        prompt = (
            _ids(given, self._profile.vocabulary)
            if isinstance(given, list)
            else _words(given, "Prompt is empty")
        )
        self._openai(connection, body, prompt, body.get("max_tokens") or 16, chat=False)

    def _chat(self, connection: Connection, request: Request) -> None:
        body = _json(request)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequest("Messages cannot be empty")
        said = "\n".join(json.dumps(message) for message in messages)
        wanted = body.get("max_completion_tokens") or body.get("max_tokens")
        self._openai(connection, body, _words(said, "Messages cannot be empty"), wanted, chat=True)

    def _openai(
        self,
        connection: Connection,
        body: dict[str, Any],
        prompt: Sequence[Hashable],
        wanted: Any,
        *,
        chat: bool,
    ) -> None:
        options = body.get("stream_options") or {}
        stream = bool(body.get("stream"))
        sink = OpenAI(
            connection,
            body.get("model") or self._model,
            chat=chat,
            stream=stream,
            usage=bool(options.get("include_usage")),
            each_usage=bool(options.get("continuous_usage_stats")),
        )
        self._submit(connection, prompt, wanted, sink, stream=stream)

    def _submit(
        self, connection: Connection, prompt: Sequence[Hashable], wanted: Any, sink: Sink, *, stream: bool
    ) -> None:
        tokens = DEFAULT_TOKENS if wanted is None else wanted
        if not isinstance(tokens, int) or isinstance(tokens, bool):
            raise BadRequest(f"max_new_tokens must be an integer, got {tokens!r}")
        generation = self._scheduler.submit(prompt, tokens, sink)
        connection.on_close = lambda: self._scheduler.abort(generation)
        if stream:
            connection.begin()


def _json(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(request.body)
    except ValueError as error:
        raise BadRequest(f"Invalid JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def _ids(given: Any, vocabulary: int) -> list[int]:
    if not isinstance(given, list) or not given or not all(isinstance(token, int) for token in given):
        raise BadRequest(
            "the simulated host takes one prompt a request: a list of token ids that is not empty"
        )
    if not all(0 <= token < vocabulary for token in given):
        raise BadRequest(f"The input_ids contain values outside of the vocabulary of {vocabulary} tokens.")
    return given


def _words(given: Any, empty: str) -> list[str]:
    """There is no tokenizer here: a word, or a punctuation mark, counts as a token."""
    if not isinstance(given, str) or not given:
        raise BadRequest(empty)
    return re.findall(r"\w+|[^\w\s]", given) or [given]
