"""An engine stand-in: a process with the habits that make engines hard to stop. Standard library only.

Its parent serves HTTP and, told to end, leaves its children behind. They are: `plain` with a child of its own
that was started by exec, `deaf`, which ignores SIGTERM and has shared memory, and `stray`, which made its own
session and whose parent is gone. When one of them dies the parent dies of it, as SGLang's and vLLM's do.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import signal
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TRACEBACK = """Traceback (most recent call last):
  File "/opt/engine/worker.py", line 12, in init
    communicator = table[capability]
KeyError: 12"""


def say(text: str) -> None:
    print(text, flush=True)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"status": "ok"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """A completion: a token each 20 ms, as many as asked for."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        say("request received")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        wanted = request["max_tokens"]
        for count in range(1, wanted + 1):
            time.sleep(0.02)
            usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": count}
            choice = {"index": 0, "text": "x ", "finish_reason": "length" if count == wanted else None}
            self.event(json.dumps({"choices": [choice], "usage": usage}))
        self.event("[DONE]")

    def event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())

    def log_message(self, *args: object) -> None:
        pass


def child(work: object) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work()  # type: ignore[operator]
            while True:
                signal.pause()
        finally:
            os._exit(3)
    return pid


def plain(gpu_mib: int, told: int) -> None:
    if gpu_mib:
        hold_gpu_memory(gpu_mib)
    os.close(told)
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "1000"])


def hold_gpu_memory(mib: int) -> None:
    """On the first visible GPU, through the driver's own library."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    for failed in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)),
    ):
        if failed:
            say(f"CUDA error {failed}")
            os._exit(4)
    say(f"holds {mib} MiB of GPU memory")


def deaf(name: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path = Path("/dev/shm") / name
    made = path.with_name(f"sem.{name}-made")
    for one in (path, made):
        one.write_bytes(b"x" * 4096)
        with one.open("r+b") as file:
            globals()[one.name] = mmap.mmap(file.fileno(), 4096)
    os.link(made, path.with_name(f"sem.{name}"))  # as glibc makes a semaphore
    made.unlink()


def stray() -> int:
    """A daemon: its own session, its parent gone."""
    read, write = os.pipe()

    def middle() -> None:
        os.setsid()
        os.write(write, b"%d\n" % child(lambda: None))
        os._exit(0)

    pid = child(middle)
    os.waitpid(pid, 0)
    return int(os.read(read, 32))


def family(gpu_mib: int) -> dict[str, int]:
    name = f"stand-in-{os.getpid()}"
    holds, told = os.pipe()
    members = {"plain": child(lambda: plain(gpu_mib, told))}
    os.close(told)
    os.read(holds, 1)  # a CUDA context takes a second; nothing is ready before its memory is held
    members |= {"deaf": child(lambda: deaf(name)), "stray": stray()}
    Path(tempfile.gettempdir(), "left-behind").write_text("x")
    say("family " + " ".join(f"{key}={value}" for key, value in members.items()))
    return members


def watch(members: dict[str, int], mode: str) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.1)
            continue
        if pid in members.values():
            say(f"Subprocess {pid} crashed with exit code {os.waitstatus_to_exitcode(status)}.")
            if mode != "lingers":
                os._exit(9)
            print(
                TRACEBACK, file=sys.stderr, flush=True
            )  # and waits for something, as SGLang does for core dumps


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--mode", default="serve")
    parser.add_argument("--after", type=float, default=0.0, help="seconds of loading, or until it dies")
    parser.add_argument("--flood", type=int, default=0, help="MiB of log before it is ready")
    parser.add_argument("--gpu-mib", type=int, default=0, help="GPU memory that a child holds")
    parser.add_argument("--alone", action="store_true", help="no children")
    options = parser.parse_args()

    def drain(number: int, frame: object) -> None:
        say("SIGTERM received. Draining requests and shutting down...")
        if options.mode != "never-ends":
            os._exit(0)

    signal.signal(signal.SIGTERM, drain)
    say("server_args=StandIn()")
    say(f"secret is {os.environ.get('STAND_IN_TOKEN')}")
    if options.mode == "exits":
        print(TRACEBACK, file=sys.stderr, flush=True)
        sys.exit(1)
    members = {} if options.alone else family(options.gpu_mib)
    threading.Thread(target=watch, args=(members, options.mode), daemon=True).start()
    say("Load weight begin.")
    if options.mode == "hopeless":
        print(TRACEBACK, file=sys.stderr, flush=True)
        time.sleep(1000)
    if options.mode == "loads":
        time.sleep(1000)
    for _ in range(options.flood):
        sys.stdout.write(("y" * 1023 + "\n") * 1024)
    if options.mode not in ("dies", "closes"):
        time.sleep(options.after)
    if options.mode == "deluded":  # SGLang on a taken port
        say("[Errno 98] error while attempting to bind on address: address already in use")
        say("The server is fired up and ready to roll!")
        time.sleep(1000)
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say("The server is fired up and ready to roll!")
    if options.mode == "dies":
        time.sleep(options.after)
        print(TRACEBACK, file=sys.stderr, flush=True)
        os._exit(1)
    if options.mode == "closes":
        time.sleep(options.after)
        server.shutdown()
        server.server_close()
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main()
