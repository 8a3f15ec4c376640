#!/usr/bin/env python3
"""Compiles the kernels to PTX, on any Linux machine, with or without a GPU: those of the engine to
ptx/generated/gphash.ptx, those of the store to versions.ptx, compaction.ptx and locator.ptx beside it, those of the bench to bench/limits/limits.ptx.

    python3 ptx/build.py                   writes all
    python3 ptx/build.py --check           fails if one is not what the sources give
    python3 ptx/build.py --logging FILE    writes those of the engine with notes of their stores

The compiler is NVRTC from PyPI, pinned, in a virtual environment of its own.
"""

import argparse
import ctypes
import difflib
import pathlib
import subprocess
import sys
import venv

COMPILER = "nvidia-cuda-nvrtc-cu12==12.4.127"
# Volta is the oldest card served; its PTX loads on every later one. PTX ISA 8.4 needs a driver
# of the 550 series (2024) or later.
OPTIONS = ["--gpu-architecture=compute_70", "--std=c++17"]

FOLDER = pathlib.Path(__file__).resolve().parent
KERNELS = ["batch.cu", "cache.cu", "index.cu", "mirror.cu", "order.cu", "recovery_scan.cu", "resize.cu"]
# What each PTX file is made of, as one module, and with which options; the sources lie beside it or
# in `kernels`.
MODULES = {
    FOLDER / "generated/gphash.ptx": (sorted([*KERNELS, "layout.cu"]), []),
    FOLDER / "generated/compaction.ptx": (["compaction.cu"], []),
    FOLDER / "generated/locator.ptx": (["locator.cu"], []),
    FOLDER / "generated/versions.ptx": (["versions.cu"], []),
    FOLDER.parent / "bench/limits/limits.ptx": (["limits.cu"], []),
}
LOGGING = (KERNELS, ["-DGPHASH_WRITE_TRACE"])
TOOLCHAIN = FOLDER / ".toolchain"


def compiler() -> ctypes.CDLL:
    """The pinned NVRTC, installed if it is not there yet."""
    stamp = TOOLCHAIN / "installed"
    if not stamp.exists() or stamp.read_text() != COMPILER:
        venv.create(TOOLCHAIN, clear=True, with_pip=True)
        subprocess.run([TOOLCHAIN / "bin/pip", "install", "--quiet", COMPILER], check=True)
        stamp.write_text(COMPILER)
    (library,) = TOOLCHAIN.glob("lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    return ctypes.CDLL(str(library))


def compile_module(
    nvrtc: ctypes.CDLL, output: pathlib.Path, sources: list[str], own_options: list[str]
) -> str:
    """The PTX of the sources as one module."""
    source = "".join(f'#include "{name}"\n' for name in sources)
    name = f"module of {output.name}"
    program = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), 0, None, None))
    folders = [f"-I{path}" for path in (output.parent, FOLDER / "kernels", FOLDER / "include")]
    options = [option.encode() for option in OPTIONS + folders + own_options]
    result = nvrtc.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    if log.strip():
        print(log, file=sys.stderr)
    check(result)
    return text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)


def text(size_of, read, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    check(size_of(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(read(program, buffer))
    return buffer.value.decode()


def check(result: int) -> None:
    if result != 0:
        sys.exit(f"NVRTC answered {result}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument(
        "--logging", type=pathlib.Path, metavar="FILE", help="for tests of crashes on a GPU")
    arguments = parser.parse_args()
    nvrtc = compiler()
    if arguments.logging:
        arguments.logging.write_text(compile_module(nvrtc, arguments.logging.resolve(), *LOGGING))
        return
    for output, (sources, options) in MODULES.items():
        ptx = compile_module(nvrtc, output, sources, options)
        if arguments.check:
            compare(output, ptx)
        else:
            output.write_text(ptx)
            print(f"{output.name}: {len(ptx)} bytes")
    if arguments.check:
        # The last one: NVRTC numbers calls through all that a process compiles.
        compile_module(nvrtc, TOOLCHAIN / "logging.ptx", *LOGGING)
        print("logging.ptx: compiles")


def compare(output: pathlib.Path, ptx: str) -> None:
    """Ends the script if the file is not this PTX."""
    found = output.read_text() if output.exists() else ""
    if found != ptx:
        difference = difflib.unified_diff(
            found.splitlines(), ptx.splitlines(), "checked in", "compiled", n=0, lineterm="")
        print("\n".join(list(difference)[:40]), file=sys.stderr)
        sys.exit(f"{output.name} is not what the sources give; run python3 ptx/build.py")
    print(f"{output.name}: as the sources give it")


if __name__ == "__main__":
    main()
