"""Two versions of an engine's source, cut down to the shapes that SGLang uses: everything in one class with
`_handle_*` methods, as in 0.5.9, and hooks over annotated fields, as in 0.5.23. Written for these tests.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from pytest_gpuserve.check.explain import Explanation, explain
from pytest_gpuserve.check.options import SGLANG
from pytest_gpuserve.check.package import Package, at_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD = {
    "version.py": '__version__ = "0.5.9"\n',
    "srt/environ.py": """
        class EnvBool: ...
        class EnvInt: ...
        class Envs:
            SGLANG_NVFP4_DISPATCH = EnvBool(False)
            SGLANG_TOKENS = EnvInt(1024)
        envs = Envs()
    """,
    "srt/server_args.py": """
        import dataclasses
        import logging
        import os
        from typing import Literal, Optional
        from sglang.srt.environ import envs

        logger = logging.getLogger(__name__)
        BACKENDS = ["none", "deepep", "flashinfer", "mori"]

        @dataclasses.dataclass
        class ServerArgs:
            model_path: str
            tp_size: int = 1
            ep_size: int = 1
            moe_a2a_backend: Literal["none", "deepep", "flashinfer", "mori"] = "none"
            moe_runner_backend: str = "auto"
            deepep_mode: str = "auto"
            chunked_prefill_size: int = 2048
            disable_shared_experts_fusion: bool = False
            enable_two_batch_overlap: bool = False
            enable_torch_symm_mem: bool = False
            enable_context_parallel: bool = False
            fusion_backend: Optional[str] = None

            def __post_init__(self):
                self._handle_kernels()
                self._handle_a2a()
                self._handle_models()
                self.check_late()

            def check_late(self):
                if self.enable_two_batch_overlap and self.moe_a2a_backend == "none":
                    raise ValueError("two batch overlap needs moe_a2a_backend")

            def _handle_a2a(self):
                if self.moe_a2a_backend == "deepep":
                    self.ep_size = self.tp_size
                if self.moe_a2a_backend == "flashinfer":
                    self.ep_size = self.tp_size
                    logger.warning(f"EP is set to [{self.tp_size}].")
                    self.disable_shared_experts_fusion = True
                    if self.deepep_mode != "auto":
                        logger.warning("--deepep-mode is ignored")
                    if os.environ.get("SGLANG_NVFP4_DISPATCH") is None:
                        envs.SGLANG_NVFP4_DISPATCH.set(True)
                    assert self.moe_runner_backend in [
                        "flashinfer_cutlass"
                    ], "A2A is only supported with flashinfer_cutlass"
                elif self.moe_a2a_backend == "mori":
                    raise ValueError("mori is not ready")

            def _handle_kernels(self):
                if self.moe_runner_backend == "cutedsl":
                    assert self.moe_a2a_backend in ["none", "deepep"], "cutedsl takes none or deepep"

            def _handle_models(self):
                if self.enable_context_parallel:
                    self.moe_a2a_backend = "deepep"

            @staticmethod
            def add_cli_args(parser):
                parser.add_argument("--tensor-parallel-size", "--tp-size", type=int,
                                    default=ServerArgs.tp_size, help="TP size.")
                parser.add_argument("--moe-a2a-backend", type=str, choices=BACKENDS,
                                    default=ServerArgs.moe_a2a_backend, help="A2A.")
                parser.add_argument("--moe-runner-backend", default=ServerArgs.moe_runner_backend)
                parser.add_argument("--deepep-mode", choices=["auto", "normal"], default="auto")
                parser.add_argument("--enable-torch-symm-mem", action="store_true", help="Symm mem.")
                parser.add_argument("--enable-two-batch-overlap", action="store_true")
                parser.add_argument("--hybrid-ratio", type=float,
                                    help="Note: --hybrid-ratio is deprecated. Use --swa-ratio.")
    """,
    "srt/moe/utils.py": """
        from enum import Enum

        class Backend(Enum):
            NONE = "none"
            DEEPEP = "deepep"
            FLASHINFER = "flashinfer"

            def is_none(self):
                return self == Backend.NONE

            def is_deepep(self):
                return self == Backend.DEEPEP

            def is_flashinfer(self):
                return self == Backend.FLASHINFER

            def is_expert_parallel(self):
                return self in (Backend.DEEPEP, Backend.FLASHINFER)

        BACKEND = None

        def initialize(server_args):
            global BACKEND
            BACKEND = Backend(server_args.moe_a2a_backend)

        def get_moe_a2a_backend() -> Backend:
            global BACKEND
            if BACKEND is None:
                BACKEND = Backend.NONE
            return BACKEND

        def uses_allgather():
            return get_moe_a2a_backend().is_none()
    """,
    "srt/moe/__init__.py": "from .utils import *\n",
    "srt/moe/layer.py": """
        from sglang.srt.moe import get_moe_a2a_backend, uses_allgather
        from sglang.srt.moe.dispatcher import DeepDispatcher, FlashDispatcher

        def create_dispatcher(config):
            backend = get_moe_a2a_backend()
            if backend.is_none():
                return None
            elif backend.is_deepep():
                return DeepDispatcher(config)
            elif backend.is_flashinfer():
                return FlashDispatcher(config)
            raise NotImplementedError(f"no dispatcher for {backend}")

        class Layer:
            def __init__(self, config):
                self.gather = uses_allgather()

            def forward(self, x):
                if not self.gather:
                    assert x.ready, "not gathered"
                return x
    """,
    "srt/moe/dispatcher.py": """
        try:
            import deep
            use_deep = True
        except ImportError:
            use_deep = False

        class Base:
            def __init__(self, config):
                if not use_deep:
                    raise ImportError("DeepEP is not installed.")

        class DeepDispatcher(Base):
            def __init__(self, config):
                super().__init__(config)

        class FlashDispatcher:
            def __init__(self, config):
                self.config = config
    """,
    "srt/distributed/__init__.py": "from .state import *\n",
    "srt/distributed/state.py": """
        from .comm import Communicator

        _ENABLE = False

        def set_symm_mem(enable):
            global _ENABLE
            _ENABLE = enable

        class Group:
            def __init__(self, use_symm_mem, world_size):
                self.use_symm_mem = use_symm_mem
                self.comm = None
                if self.use_symm_mem and world_size > 1:
                    self.comm = Communicator(world_size)

        def init_group(world_size, use=None):
            if use is None:
                use = _ENABLE
            return Group(use_symm_mem=use, world_size=world_size)
    """,
    "srt/distributed/comm.py": """
        import logging
        import torch
        logger = logging.getLogger(__name__)
        SIZES = {9: 1, 10: 2}

        class Communicator:
            def __init__(self, world_size):
                self.capability = torch.cuda.get_device_capability()[0]
                if self.capability < 9:
                    logger.warning("capability %s is not supported", self.capability)
                    return
                self.size = SIZES[self.capability]
    """,
    "srt/runner.py": """
        from sglang.srt.distributed import set_symm_mem

        class Runner:
            def __init__(self, server_args):
                self.server_args = server_args

            def start(self):
                set_symm_mem(self.server_args.enable_torch_symm_mem)

        class Other:
            def size(self):
                return self.moe_a2a_backend
    """,
    "test/fixture.py": 'def f(server_args):\n    assert server_args.moe_a2a_backend == "flashinfer"\n',
    "srt/fusion.py": """
        import logging
        from sglang.srt.platform import is_sm90
        logger = logging.getLogger(__name__)

        def resolve_backend(backend):
            if not is_sm90():
                raise ValueError("fusion needs SM90")
            return backend

        def unrelated(size):
            raise ValueError("never about fusion")

        def configured(server_args):
            backend = getattr(server_args, "fusion_backend", None)
            if backend is None:
                return None
            unrelated(3)
            return resolve_backend(backend)
    """,
    "srt/template.py": "this is {{ no }} Python, moe_a2a_backend\n",
}

NEW = {
    **OLD,
    "version.py": '__version__ = "0.5.23"\n',
    "srt/server_args.py": """
        class ServerArgs:
            @staticmethod
            def add_cli_args(parser):
                parser.add_argument("--enable-dp-attention", action=DeprecatedStoreTrueAction,
                                    help="Deprecated. Use --attn-dp-size N.")
    """,
    "srt/arg_groups/fields/exec_.py": """
        from typing import Annotated as A, Literal, Optional
        import msgspec

        class Moe(msgspec.Struct):
            _NS_PATH = "exec.moe"
            moe_a2a_backend: A[
                Literal["none", "deepep", "flashinfer", "mori", "pplx"],
                Arg(help="A2A.", choices=["none", "deepep", "flashinfer", "mori", "pplx"]),
            ] = "none"
            moe_runner_backend: A[str, "The runner."] = "auto"
            deepep_mode: A[str, Arg(help="Mode.", choices=["auto", "normal"])] = "auto"
            disable_shared_experts_fusion: A[bool, "No fusion."] = False
            enable_torch_symm_mem: A[bool, "Symm mem."] = False
            tp_size: A[int, Arg(help="TP size.", aliases=["--tensor-parallel-size"])] = 1
            ep_size: A[int, Arg(help="EP size.", aliases=["--ep"])] = 1
            attn_dp_size: A[int, "Attention DP."] = 1
            enable_dp_attention: A[bool, Arg(no_cli=True)] = False
            join_offset: A[int, Arg(help="Offset.", cli_name="--elastic-join-offset")] = 0
            stat_loggers: A[Optional[list], NS("observability")] = None
    """,
    "srt/arg_groups/pipeline.py": """
        from sglang.srt.arg_groups.overrides import a2a_ep_size, run_pass
        from sglang.srt.arg_groups.resolution import run_hook

        def run_resolution_pipeline(server_args):
            from sglang.srt.arg_groups.moe_hook import handle_a2a, validate_budget

            run_pass(server_args, a2a_ep_size)
            run_hook(handle_a2a, server_args)
            run_hook(validate_budget, server_args)
    """,
    "srt/arg_groups/resolution.py": """
        def run_hook(builtin, server_args):
            builtin(server_args)

        def declare_resolution(server_args, source, **fields):
            if not fields:
                raise AttributeError("no fields")
    """,
    "srt/arg_groups/overrides.py": """
        _SPANNING = frozenset({"deepep", "flashinfer"})

        def resolved_view(server_args):
            return server_args

        def run_pass(server_args, fn):
            return fn(server_args)

        def a2a_ep_size(view):
            if view.moe_a2a_backend in _SPANNING:
                return {"ep_size": view.tp_size}
            return {}
    """,
    "srt/arg_groups/moe_hook.py": """
        import logging
        from sglang.srt.arg_groups.overrides import resolved_view
        from sglang.srt.arg_groups.resolution import declare_resolution
        from sglang.srt.environ import envs
        logger = logging.getLogger(__name__)

        def validate_budget(server_args):
            view = resolved_view(server_args)
            if view.moe_a2a_backend != "flashinfer":
                return
            if view.tp_size > envs.SGLANG_TOKENS.get():
                raise ValueError(f"token budget exceeds {envs.SGLANG_TOKENS.get()}")

        def handle_a2a(server_args):
            cfg = resolved_view(server_args)
            a2a = resolved_view(server_args).moe_a2a_backend
            if a2a == "deepep":
                declare_resolution(server_args, "a2a", moe_runner_backend="deep_gemm")
            if a2a == "flashinfer":
                assert topology_is_supported(tp_size=cfg.tp_size, attn_dp_size=cfg.attn_dp_size), (
                    "A2A requires --attn-dp-size equal to --tp-size"
                )
                check_dispatch(server_args)
                declare_resolution(server_args, "a2a", disable_shared_experts_fusion=True)
                assert resolved_view(server_args).moe_runner_backend in [
                    "flashinfer_cutlass",
                    "flashinfer_trtllm",
                ], "A2A is only supported with flashinfer_cutlass or flashinfer_trtllm"

        def topology_is_supported(*, tp_size, attn_dp_size):
            return tp_size == attn_dp_size

        def check_dispatch(server_args):
            if envs.SGLANG_NVFP4_DISPATCH.get():
                raise ValueError("unset SGLANG_NVFP4_DISPATCH")
    """,
    "srt/arg_groups/model_overrides.py": """
        def _llama_overrides(cfg, overrides):
            match cfg.moe_a2a_backend:
                case "none" | "deepep":
                    overrides["moe_runner_backend"] = "marlin"
                case "flashinfer":
                    raise ValueError("Llama takes no flashinfer")
    """,
    "srt/distributed/comm.py": """
        import logging
        import torch
        logger = logging.getLogger(__name__)
        SIZES = {9: 1, 10: 2}

        class Communicator:
            def __init__(self, world_size):
                self.capability = torch.cuda.get_device_capability()[0]
                self.size = SIZES.get(self.capability)
                if self.size is None:
                    logger.warning("capability %s is not supported", self.capability)
    """,
}


def write(folder: Path, files: dict[str, str]) -> Path:
    """The package `sglang` below the folder, made of these files."""
    for name, text in files.items():
        path = folder / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        for parent in path.relative_to(folder).parents:
            if str(parent) != ".":
                (folder / parent / "__init__.py").touch()
    return folder


@pytest.fixture(scope="session")
def old_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("old"), OLD)


@pytest.fixture(scope="session")
def new_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("new"), NEW)


@pytest.fixture
def old(old_folder: Path) -> Package:
    return at_path(old_folder, "sglang", without=SGLANG.without)


@pytest.fixture
def new(new_folder: Path) -> Package:
    return at_path(new_folder, "sglang", without=SGLANG.without)


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Package]:
    """Makes a package of a few files, beside which nothing else is there."""

    def make(files: dict[str, str] | None = None, **modules: str) -> Package:
        named = {f"{name.replace('__', '/')}.py": text for name, text in modules.items()}
        return at_path(write(tmp_path, {"version.py": "", **named, **(files or {})}), "sglang")

    return make


@pytest.fixture
def ask() -> Callable[..., Explanation]:
    def question(package: Package, text: str, *given: str) -> Explanation:
        return explain(package, SGLANG, text, given)

    return question
