from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpuserve.check import resources
from pytest_gpuserve.check.resources import SHM, check_host, check_ports, free_gib
from pytest_gpuserve.model import Config, ModelRef, Place
from pytest_gpuserve.serving.gpus import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_gpuserve.check.finding import Finding


def host(root: Path, free: Callable[[Path], float | None], gpus: int = 0) -> list[Finding]:
    return list(check_host(root, gpus_needed=gpus, environ={"XDG_CACHE_HOME": "/cache"}, free=free))


def test_enough_room(tmp_path: Path) -> None:
    assert host(tmp_path, lambda _: 100.0, gpus=8) == []
    assert host(tmp_path, lambda _: None, gpus=8) == []


def test_little_room_is_told_with_the_place(tmp_path: Path) -> None:
    (found,) = host(tmp_path, lambda path: 0.5 if path == tmp_path / ".gpuserve" else 100.0)
    assert found.severity == "warning"
    assert found.text.startswith("0.5 GiB are free for records and logs")


def test_shared_memory_matters_for_more_than_one_gpu(tmp_path: Path) -> None:
    def free(path: Path) -> float:
        return 0.0625 if path == SHM else 100.0

    assert host(tmp_path, free, gpus=1) == []
    (found,) = host(tmp_path, free, gpus=8)
    assert "0.06 GiB are free in /dev/shm, which 8 ranks share" in found.text


def test_room_where_nothing_is_yet(tmp_path: Path) -> None:
    assert free_gib(tmp_path / "not" / "there") == pytest.approx(free_gib(tmp_path), rel=0.1)


def test_gpus_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "gpus", lambda: (Gpu(0, "GPU-0"), Gpu(1, "GPU-1")))
    monkeypatch.setattr(resources, "used_mib", {0: 20480.0, 1: 3.0}.get)
    monkeypatch.setattr(resources, "users", lambda index: [])
    (found,) = host(tmp_path, lambda _: 100.0, gpus=1)
    assert (found.severity, found.text) == ("warning", "GPU 0 is in use: 20.0 GiB of its memory")
    assert host(tmp_path, lambda _: 100.0) == []  # nobody needs one


def ports(args: dict[str, Any]) -> list[Finding]:
    place, model = Place("s.yaml", 1), ModelRef(id="m")
    return list(check_ports(Config(id="one", place=place, engine="sglang", model=model, args=args)))


def test_ports_that_flags_fix() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (found,) = ports({"nccl-port": port, "tp-size": port})
        assert found.severity == "error" and f"--nccl-port: port {port} cannot" in found.text
        assert len(ports({"dist-init-addr": f"127.0.0.1:{port}"})) == 1
        assert ports({"dist-init-addr": f"10.0.0.1:{port}"}) == []
    assert ports({"nccl-port": port}) == []
    assert ports({"nccl-port": 0, "grpc-port": True, "dist-init-addr": "nowhere"}) == []
