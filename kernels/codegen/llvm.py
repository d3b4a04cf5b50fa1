"""LLVM text (render.py) to machine code, and the compile cache. The only module that imports llvmlite.

Each process has one `Compiler`. It looks up object code by fingerprint in memory, then on disk, and only then compiles
it with LLVM."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import pkgutil
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from typing import Any, ClassVar

import llvmlite
import llvmlite.binding as binding
from llvmlite.binding import ffi

from tsql.kernels.codegen import memory
from tsql.kernels.codegen.elf import check_object
from tsql.kernels.codegen.host_symbols import HOST_CALLS, HOST_SYMBOLS
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.object_cache import UNUSABLE, read_entry, write_later
from tsql.kernels.codegen.objects import ObjectCode
from tsql.kernels.codegen.render import render, shared_names
from tsql.kernels.process import forks
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime import pool

MEMORY_CALLS = ("malloc", "calloc", "realloc", "free")
"""C functions that kernels call in the memory pool instead of the C library."""

VERSION = 5
"""Part of the cache key: raise it when rendering or the calling convention changes."""

QUICK, TIERED, FULL = 0, 1, 2
"""Optimisation levels. QUICK: two passes and fast instruction selection, for kernels that see few rows (about a tenth
of the compile time). FULL: all passes, with vector instructions. TIERED: FULL if that code exists already, else QUICK,
and FULL once the query is done (`promote.py`)."""

LIBRARIES = 256
"""A new JIT is started after this many libraries: a JIT searches all of its libraries whenever one is added, and never
drops one."""

FEW_ROWS = 50_000
"""Up to this many rows a routine's quick code finishes before better code would be compiled."""

FORK_SECONDS = 5.0
"""How long a fork waits for threads inside of LLVM."""

_UNLOCKED = (
    "LLVMPY_ParseAssembly",
    "LLVMPY_VerifyModule",
    "LLVMPY_RunNewModulePassManager",
    "LLVMPY_TargetMachineEmitToMemory",
)


def _unlock() -> None:
    """llvmlite lets one thread at a time into LLVM, so a query would wait for background compilation. The slow calls
    touch only their module, its context and its target machine, and each thread has its own of these. If llvmlite is
    built differently, it keeps its lock."""
    table = getattr(ffi.lib, "_fntab", None)
    for name in _UNLOCKED:
        function = getattr(getattr(ffi.lib, name), "_cfn", None)
        if isinstance(table, dict) and function is not None:
            table[name] = function


@dataclass
class Compiled:
    """Machine code of a module's main function. `tracker` keeps the code alive, and the code it calls."""

    address: int
    tracker: Any
    milliseconds: float
    origin: str

    @cached_property
    def function(self) -> Any:
        """main as a ctypes function of three words (ctx, morsels, count). A call releases the GIL. The function keeps
        the code alive."""
        function: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self.address)
        function.tracker = self.tracker
        return function


@dataclass(frozen=True)
class SharedRoutine:
    """A routine that other code calls: its address, what keeps it alive, and the key of the code that contains it."""

    address: int
    tracker: Any
    key: str


class _Lent:
    """A context lent to a thread for its lifetime. It then goes to another thread, and is never freed: if the garbage
    collector finds a module together with its context, it may free the context first, and LLVM crashes."""

    free: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        try:
            self.context = self.free.pop()
        except IndexError:
            self.context = binding.create_context()
        weakref.finalize(self, self.free.append, self.context).atexit = False


class Compiler:
    """Compiles and links machine code, with its caches. Thread-safe: one thread makes a kernel, and others that want it
    wait; different kernels are made in parallel."""

    def __init__(self) -> None:
        _unlock()
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        # 128-bit division and conversions are calls into the compiler's runtime library.
        ctypes.CDLL("libgcc_s.so.1", mode=ctypes.RTLD_GLOBAL)
        self._lock = forks.lock()
        self._memory: dict[str, Compiled] = {}
        self._making: dict[str, threading.Lock] = {}
        self._routines: dict[tuple[Callable[[], Module], int], Compiled] = {}
        self._shared: dict[str, SharedRoutine] = {}
        """Routines of quick code that other quick code calls."""
        self._loading: set[str] = set()
        self._serial = 0
        self._jit: Any = None
        self._own = threading.local()
        self.in_foreground = 0
        """The number of queries waiting for code."""
        self._last_foreground = 0.0
        self._cpu = binding.get_host_cpu_name()
        self._features = binding.get_host_cpu_features().flatten()
        self._made_by = "\0".join((str(VERSION), llvmlite.__version__, self._cpu, self._features))

    def begin_again(self) -> None:
        """In the child of a fork: drop what other threads of the parent were making."""
        self._making, self._loading, self.in_foreground = {}, set(), 0

    def _machine(self, opt: int) -> Any:
        """The target machine of a level, one per thread."""
        made: dict[int, Any] | None = getattr(self._own, "machines", None)
        if made is None:
            made = self._own.machines = {}
        if opt not in made:
            made[opt] = self._make_machine(opt)
        return made[opt]

    def _context(self) -> Any:
        """The LLVM context (types and constants), one per thread."""
        if not hasattr(self._own, "lent"):
            self._own.lent = _Lent()
        return self._own.lent.context

    def _make_machine(self, opt: int) -> Any:
        # Wide vectors do not pay for these loops on most machines, and 256 bits are what mixed-width predicates use
        # best.
        return binding.Target.from_default_triple().create_target_machine(
            cpu=self._cpu, features=self._features, opt=opt, reloc="pic", codemodel="jitdefault", jit=True
        )

    def _key(self, name: str, opt: int) -> str:
        """The cache key of a module's fingerprint, or of code stored under a name."""
        return hashlib.sha256(f"{self._made_by}\0{opt}\0{name}".encode()).hexdigest()

    def known(self, module: Module, opt: int = FULL) -> Compiled | None:
        """The machine code of `module` if it is in memory or on disk."""
        start, key = time.perf_counter(), self._key(module.fingerprint(), opt)
        with self._lock:
            return self._loaded(key, start)

    def compile(
        self, module: Module, opt: int = FULL, check: Callable[[], None] = lambda: None, foreground: bool = True
    ) -> Compiled:
        """The machine code of `module`: from memory, from disk, or compiled now. `check` is called between the stages
        and may raise to stop: LLVM itself cannot be interrupted."""
        if not foreground:
            return self._compile(module, opt, check)
        with self._lock:
            self.in_foreground += 1
        try:
            return self._compile(module, opt, check)
        finally:
            with self._lock:
                self.in_foreground -= 1
                self._last_foreground = time.monotonic()

    def seconds_idle(self) -> float:
        """How long no query has been waiting for code."""
        with self._lock:
            return 0.0 if self.in_foreground else time.monotonic() - self._last_foreground

    def routine(self, make: Callable[[], Module], opt: int = FULL, rows: int | None = None) -> Callable[..., Any]:
        """The function of a module that is the same in every query; its text is made once per process. `rows`: the
        number of rows to process now. If there are few, quick code is used unless better code exists already."""
        if rows is not None and rows <= FEW_ROWS and (make, opt) not in self._routines:
            opt = QUICK
        found = self._routines.get((make, opt))
        if found is None:
            found = self._routines[make, opt] = self.compile(make(), opt)
        return found.function

    def _compile(self, module: Module, opt: int, check: Callable[[], None]) -> Compiled:
        start = time.perf_counter()
        key = self._key(module.fingerprint(), opt)
        with self._lock:
            found = self._memory.get(key)
            if found is not None:
                return found
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                found = self._loaded(key, start)
            if found is None:
                made = self._build(module, opt, check)
                write_later("code", key, made.encode, self._made_by)
                with self._lock:
                    # Another thread may have loaded the code from disk since it was written (`known`).
                    found = self._memory.get(key) or self._link(key, made, start, "llvm")
            with self._lock:
                self._making.pop(key, None)
            return found

    def _build(self, module: Module, opt: int, check: Callable[[], None]) -> ObjectCode:
        """Compile a module. Quick code imports routines that are already loaded, and exports those that it is the first
        to have."""
        machine = self._machine(opt)
        check()
        names = shared_names(module) if opt == QUICK else {}
        with self._lock:
            imports = {name: self._shared[name].key for name in names.values() if name in self._shared}
        text = render(module, names, imports)
        with _gate:
            optimized = self._optimized(text, opt, machine)
        check()
        with _gate:
            code = machine.emit_object(optimized)
        return ObjectCode(code, (module.main, *(name for name in names.values() if name not in imports)), imports)

    def _loaded(self, key: str, start: float) -> Compiled | None:
        """Code in memory or on disk, with the other code that it needs. Processes write independently, so an entry
        counts as missing if its needs are not met, if it needs itself, or if it cannot be linked."""
        found = self._memory.get(key)
        if found is not None or key in self._loading:
            return found
        data = read_entry("code", key, self._made_by)
        if data is None:
            return None
        self._loading.add(key)
        try:
            kept = ObjectCode.decode(data)
            for name, owner in kept.imports.items():
                if name not in self._shared:
                    self._loaded(owner, start)
            if any(name not in self._shared for name in kept.imports):
                return None
            return self._link(key, kept, start, "disk")
        except UNUSABLE:
            return None
        finally:
            self._loading.discard(key)

    def store(self, name: str, module: Module, opt: int = FULL) -> None:
        """Store the code of a compiled module on disk under a name too, for kernels whose text takes longer to make
        than the code to load."""
        data = read_entry("code", self._key(module.fingerprint(), opt), self._made_by)
        if data is not None:
            write_later("code", self._key(name, opt), lambda: data, self._made_by)

    def stored(self, name: str, opt: int = FULL) -> Compiled | None:
        """The code that `store` kept under a name, in this process or an earlier one."""
        start, key = time.perf_counter(), self._key(name, opt)
        with self._lock:
            return self._loaded(key, start)

    def optimized(self, module: Module, opt: int, machine: Any = None) -> Any:
        """The LLVM module after the optimisation passes of a level (see `QUICK` and `FULL`)."""
        return self._optimized(render(module), opt, machine or self._machine(opt))

    def _optimized(self, text: str, opt: int, machine: Any) -> Any:
        llvm_module = binding.parse_assembly(text, self._context())
        llvm_module.triple = machine.triple
        llvm_module.data_layout = str(machine.target_data)
        llvm_module.verify()
        options = binding.create_pipeline_tuning_options(speed_level=1)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
        builder = binding.create_pass_builder(machine, options)
        if opt == QUICK:
            passes = binding.create_new_module_pass_manager()
            # Combining instructions makes large joins a fifth faster, but takes half as long as everything else
            # together.
            passes.add_sroa_pass()
            passes.add_simplify_cfg_pass()
        else:
            passes = builder.getModulePassManager()
        passes.run(llvm_module, builder)
        return llvm_module

    def _link(self, key: str, made: ObjectCode, start: float, origin: str) -> Compiled:
        """Link object code into the process. It is then found by its key, and its routines by their names."""
        functions = self.pool()
        lent = {name: self._shared[name] for name in made.imports}
        addresses = (
            {name: address for name, (_, address) in HOST_CALLS.items()}
            | {name: functions[f"pool_{name}"] for name in MEMORY_CALLS}
            | HOST_SYMBOLS
        )
        own = self._linked(
            made.code, made.exports, addresses | {name: routine.address for name, routine in lent.items()}
        )
        main, *routines = made.exports
        tracker = (own, *(routine.tracker for routine in lent.values()))
        for name in routines:
            self._shared.setdefault(name, SharedRoutine(own[name], tracker, key))
        found = self._memory[key] = Compiled(own[main], tracker, (time.perf_counter() - start) * 1000, origin)
        return found

    def _linked(self, code: bytes, exports: tuple[str, ...], imports: dict[str, int]) -> Any:
        """Link object code: the addresses of its exports by name, valid as long as the result lives."""
        if self._serial % LIBRARIES == 0:
            # Code that was linked before keeps its JIT alive.
            self._jit = binding.create_lljit_compiler()
        self._serial += 1
        library = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in exports:
            library.export_symbol(name)
        for name, address in imports.items():
            library.import_symbol(name, address)
        return library.link(self._jit, f"tsql{self._serial}")

    def pool(self) -> Any:
        """The functions of the memory pool (kernels/runtime/pool.py), which all other code calls instead of the C
        library's. Each process has one pool. Its text takes longer to make than its code to load, so the cache key is
        its source."""
        with _pool_lock:
            if not _pool:
                # By the loader: executors of Spark may have this package in a zip file.
                source = pkgutil.get_data(pool.__package__ or "", "pool.py")
                assert source is not None
                key = self._key(source.decode(), FULL)
                kept = read_entry("pool", key, self._made_by)
                if kept is not None:
                    with contextlib.suppress(*UNUSABLE):
                        check_object(kept)
                        _pool.append(self._linked(kept, pool.EXPORTS, {pool.STATE: memory.STATE}))
                if not _pool:
                    machine = self._machine(FULL)
                    with _gate:
                        code = machine.emit_object(self.optimized(pool.pool_module(), FULL, machine))
                    write_later("pool", key, lambda: code, self._made_by)
                    _pool.append(self._linked(code, pool.EXPORTS, {pool.STATE: memory.STATE}))
                memory.are_at(_pool[0])
            return _pool[0]

    def llvm_text(self, module: Module, opt: int = FULL) -> str:
        """What `explain LLVM` prints: the optimised module."""
        with _gate:
            return str(self.optimized(module, opt))

    def assembly(self, module: Module, opt: int = FULL) -> str:
        """What `explain ASM` prints."""
        machine = self._machine(opt)
        with _gate:
            return machine.emit_assembly(self.optimized(module, opt, machine))


class Gate:
    """Counts the threads inside of LLVM without llvmlite's lock. A fork waits until there are none: a child that
    inherits LLVM's own locks in a held state cannot compile. The wait is bounded, because those locks are held only for
    moments."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside, self._shut = 0, False

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._shut)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def shut(self) -> None:
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: self._inside == 0, FORK_SECONDS)

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()


_gate = Gate()
_llvmlite = getattr(ffi.lib, "_lock", None) or nullcontext()


def _before_fork() -> None:
    _gate.shut()
    # All other calls of LLVM have llvmlite's lock.
    _llvmlite.__enter__()


def _after_fork_in_parent() -> None:
    _llvmlite.__exit__(None, None, None)
    _gate.open()


def _after_fork_in_child() -> None:
    global _gate
    _llvmlite.__exit__(None, None, None)
    _gate = Gate()
    if _compiler is not None:
        _compiler.begin_again()


forks.around(forks.ForkStage.COMPILER, _before_fork, _after_fork_in_parent, _after_fork_in_child)

_pool: list[Any] = []
_pool_lock = forks.lock()
_compiler: Compiler | None = None
_compiler_lock = forks.lock()


def compiler() -> Compiler:
    """The compiler of this process, made on first use."""
    global _compiler
    with _compiler_lock:
        if _compiler is None:
            _compiler = Compiler()
        return _compiler


memory.compiled_by.append(lambda: compiler().pool())
