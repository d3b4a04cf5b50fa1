"""KIR to LLVM text to machine code, and the compile cache. The only module that imports llvmlite.

`render` is a plain walk: vars become allocas (mem2reg makes SSA), loops and whens become labels. `Compiler` owns the one
JIT of the process: object code is looked up by fingerprint in memory, then on disk, and only then made by LLVM.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as binding
from llvmlite.binding import ffi

from tsql.kernels.codegen import memory
from tsql.kernels.codegen.kir import EXTERNS, FLOATS, Function, Module, Op, parse
from tsql.kernels.codegen.object_cache import read_code, write_later
from tsql.kernels.codegen.room import HOST_CALLS, HOST_SYMBOLS
from tsql.kernels.runtime import pool

MEMORY_CALLS = ("malloc", "calloc", "realloc", "free")
"""What kernels call of the pool where they call the C library."""

POOL_SOURCE = Path(pool.__file__)

VERSION = 4
"""Part of the cache key: raise it when rendering or the calling convention changes."""

QUICK, TIERED, FULL = 0, 1, 2
"""Levels of optimisation: two passes and fast instruction selection for kernels that see few rows (about a tenth of the
compile time), or everything, vector instructions included. TIERED: in full if that code is at hand, else quickly, and in full
once the query is done (`promote.py`)."""

FEW_ROWS = 50_000
"""What routines do for so few rows is done before better code would be there."""

INLINE_OPS = 40
"""Routines with more ops than this are called, never inlined."""

_TYPE = {"f32": "float", "f64": "double"}
_INT_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem", "udiv": "udiv", "urem": "urem", "and": "and", "or": "or", "xor": "xor", "shl": "shl", "shr": "ashr", "ushr": "lshr"}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_COMPARE = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "ult": "ult", "ule": "ule", "ugt": "ugt", "uge": "uge"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_CONVERT = {"sext": "sext", "zext": "zext", "trunc": "trunc", "itof": "sitofp", "utof": "uitofp", "ftoi": "fptosi", "fext": "fpext", "fnarrow": "fptrunc", "bitcast": "bitcast", "address": "ptrtoint", "pointer": "inttoptr"}
_FLOAT_INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "truncate": "trunc", "rint": "rint", "fabs": "fabs"}
_INT_INTRINSIC = {"popcount": "ctpop", "leading_zeros": "ctlz", "trailing_zeros": "cttz", "bswap": "bswap"}
_OVERFLOW = {"add_overflows": "sadd", "sub_overflows": "ssub", "mul_overflows": "smul"}


_UNLOCKED = ("LLVMPY_ParseAssembly", "LLVMPY_VerifyModule", "LLVMPY_RunNewModulePassManager", "LLVMPY_TargetMachineEmitToMemory")


def _unlock() -> None:
    """llvmlite lets one thread at a time into LLVM, so that a query would wait for whatever the background compiles. These calls, which take
    the time, touch nothing but their module, its context and its target machine, and each thread has its own of these. A version of
    llvmlite that is made differently keeps its lock."""
    table = getattr(ffi.lib, "_fntab", None)
    for name in _UNLOCKED:
        function = getattr(getattr(ffi.lib, name), "_cfn", None)
        if isinstance(table, dict) and function is not None:
            table[name] = function


def _type(t: str | None) -> str:
    return "void" if t is None else _TYPE.get(t, t)


def _constant(t: str, value: Any) -> str:
    if t == "ptr":
        return "null"
    if t in FLOATS:
        if t == "f32":
            value = ctypes.c_float(value).value
        return "0x" + struct.pack(">d", value).hex().upper()
    return str(value)


class _Renderer:
    """Renders one function."""

    def __init__(self, module: Module, f: Function, declared: set[str]):
        self.module, self.f, self.declared = module, f, declared
        self.names = [f"%v{i}" for i in range(len(f.types))]
        self.types = [_TYPE.get(t, t) for t in f.types]
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.labels = 0
        self.exits: list[str] = []
        self.closed = False

    def render(self, internal: bool) -> str:
        f = self.f
        params = ", ".join(f"{_type(t)} %v{i}" for i, t in enumerate(f.params))
        self.block(f.body)
        if not self.closed:
            self.lines.append("  unreachable" if f.returns else "  ret void")
        linkage = "internal " if internal else ""
        # Inlining long routines into every caller costs compile time and gains nothing.
        attributes = "nounwind noinline" if internal and sum(1 for _ in f.walk()) > INLINE_OPS else "nounwind"
        return f"define {linkage}{_type(f.returns)} @{f.name}({params}) {attributes} {{\nentry:\n" + "\n".join(self.allocas + self.lines) + "\n}\n"

    def label(self, hint: str) -> str:
        self.labels += 1
        return f"{hint}{self.labels}"

    def put(self, line: str) -> None:
        if self.closed:
            self.lines.append(f"{self.label('dead')}:")
            self.closed = False
        self.lines.append("  " + line)

    def open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.closed = False

    def jump(self, label: str) -> None:
        if not self.closed:
            self.lines.append(f"  br label %{label}")
            self.closed = True

    def intrinsic(self, name: str, returns: str, params: str) -> str:
        self.declared.add(f"declare {returns} @{name}({params})")
        return f"@{name}"

    def block(self, ops: list[Op]) -> None:
        names, types = self.names, self.types
        for op in ops:
            name, args = op.name, op.args
            # Most operations are one line over two values; `put` is for what may follow the end of a block.
            if name in _INT_BINARY and not self.closed:
                t = types[args[0]]
                table = _INT_BINARY if t[0] == "i" else _FLOAT_BINARY
                self.lines.append(f"  {names[op.dst]} = {table[name]} {t} {names[args[0]]}, {names[args[1]]}")
            elif name == "load" and not self.closed:
                self.lines.append(f"  {names[op.dst]} = load {types[op.dst]}, ptr {names[args[0]]}, align 1")
            elif name == "offset" and not self.closed:
                self.lines.append(f"  {names[op.dst]} = getelementptr i8, ptr {names[args[0]]}, i64 {names[args[1]]}")
            elif name == "const":
                names[op.dst] = _constant(op.type, op.attr)
            else:
                self.op(op)

    def op(self, op: Op) -> None:
        names, f = self.names, self.f
        args = [names[a] for a in op.args]
        types = [f.types[a] for a in op.args]
        t = _type(types[0]) if types else ""
        out = f"%v{op.dst}"
        match op.name:
            case "symbol":
                self.declared.add(f"@{op.attr} = external global i8")
                names[op.dst] = f"@{op.attr}"
            case "get":
                self.put(f"{out} = load {_type(op.type)}, ptr {args[0]}")
            case "set":
                self.put(f"store {_type(types[1])} {args[1]}, ptr {args[0]}")
            case "store":
                self.put(f"store {_type(types[1])} {args[1]}, ptr {args[0]}, align 1")
            case "when":
                self.when(op, args[0])
            case "select":
                self.put(f"{out} = select i1 {args[0]}, {_type(types[1])} {args[1]}, {_type(types[2])} {args[2]}")
            case "var":
                self.allocas.append(f"  {out} = alloca {_type(op.type)}")
                self.put(f"store {t} {args[0]}, ptr {out}")
            case "load":
                self.put(f"{out} = load {_type(op.type)}, ptr {args[0]}, align 1")
            case "offset":
                self.put(f"{out} = getelementptr i8, ptr {args[0]}, i64 {args[1]}")
            case "prefetch":
                # For reading, to stay in the caches, data.
                self.put(f"call void {self.intrinsic('llvm.prefetch.p0', 'void', 'ptr, i32, i32, i32')}(ptr {args[0]}, i32 0, i32 3, i32 1)")
            case "atomic_add":
                self.put(f"{out} = atomicrmw add ptr {args[0]}, i64 {args[1]} seq_cst")
            case "cas":
                self.put(f"{out}p = cmpxchg ptr {args[0]}, i64 {args[1]}, i64 {args[2]} seq_cst seq_cst")
                self.put(f"{out} = extractvalue {{i64, i1}} {out}p, 0")
            case "loop":
                self.loop(op)
            case "break_if":
                go = self.label("next")
                self.put(f"br i1 {args[0]}, label %{self.exits[-1]}, label %{go}")
                self.open(go)
            case "ret":
                self.put(f"ret {t} {args[0]}" if args else "ret void")
                self.closed = True
            case "call":
                self.call(op, args, types, out)
            case _:
                self.plain(op, args, types, out)

    def plain(self, op: Op, args: list[str], types: list[str], out: str) -> None:
        """Arithmetic, comparisons, conversions and the intrinsics."""
        name, t, is_float = op.name, _type(types[0]), types[0] in FLOATS
        if name in _OVERFLOW:
            f = self.intrinsic(f"llvm.{_OVERFLOW[name]}.with.overflow.{t}", f"{{{t}, i1}}", f"{t}, {t}")
            self.put(f"{out}p = call {{{t}, i1}} {f}({t} {args[0]}, {t} {args[1]})")
            self.put(f"{out} = extractvalue {{{t}, i1}} {out}p, 1")
        elif name in _CONVERT:
            self.put(f"{out} = {_CONVERT[name]} {t} {args[0]} to {_type(op.type)}")
        elif name == "fneg":
            self.put(f"{out} = fneg {t} {args[0]}")
        elif name in _FLOAT_INTRINSIC:
            f = self.intrinsic(f"llvm.{_FLOAT_INTRINSIC[name]}.{types[0]}", t, t)
            self.put(f"{out} = call {t} {f}({t} {args[0]})")
        elif name in _INT_INTRINSIC:
            extra = name in ("leading_zeros", "trailing_zeros")
            f = self.intrinsic(f"llvm.{_INT_INTRINSIC[name]}.{t}", t, f"{t}, i1" if extra else t)
            self.put(f"{out} = call {t} {f}({t} {args[0]}{', i1 false' if extra else ''})")
        elif name in _INT_COMPARE:
            kind, table = ("fcmp", _FLOAT_COMPARE) if is_float else ("icmp", _INT_COMPARE)
            self.put(f"{out} = {kind} {table[name]} {t} {args[0]}, {args[1]}")
        else:
            table = _FLOAT_BINARY if is_float else _INT_BINARY
            self.put(f"{out} = {table[name]} {t} {args[0]}, {args[1]}")

    def loop(self, op: Op) -> None:
        head, end = self.label("loop"), self.label("end")
        self.jump(head)
        self.open(head)
        self.exits.append(end)
        self.block(op.blocks[0])
        self.exits.pop()
        self.jump(head)
        self.open(end)

    def when(self, op: Op, cond: str) -> None:
        then, end = self.label("then"), self.label("end")
        otherwise = self.label("else") if op.blocks[1] else end
        self.put(f"br i1 {cond}, label %{then}, label %{otherwise}")
        self.open(then)
        self.block(op.blocks[0])
        self.jump(end)
        if op.blocks[1]:
            self.open(otherwise)
            self.block(op.blocks[1])
            self.jump(end)
        self.open(end)

    def call(self, op: Op, args: list[str], types: list[str], out: str) -> None:
        given = ", ".join(f"{_type(t)} {a}" for t, a in zip(types, args, strict=True))
        returns = _type(op.type)
        if op.attr not in self.module.functions:
            params = EXTERNS[op.attr][1]
            fixed = ", ".join(_type(t) for t in (params[:3] if op.attr == "snprintf" else params))
            self.declared.add(f"declare {returns} @{op.attr}({fixed}{', ...' if op.attr == 'snprintf' else ''}) nounwind")
            if op.attr == "snprintf":
                returns = f"{returns} ({fixed}, ...)"
        self.put(f"{out + ' = ' if op.dst is not None else ''}call {returns} @{op.attr}({given})")


_routines: dict[str, tuple[str, frozenset[str]]] = {}
"""LLVM text and declarations by KIR text: most modules share their routines with others."""


def _render_routine(module: Module, f: Function, declared: set[str]) -> str:
    found = _routines.get(f.text())
    if found is None:
        needs: set[str] = set()
        found = _routines[f.text()] = (_Renderer(module, f, needs).render(True), frozenset(needs))
    declared.update(found[1])
    return found[0]


def render(module: Module) -> str:
    """The module as LLVM text; only `main` and the exports are visible from outside."""
    declared: set[str] = set()
    visible = (module.main, *module.exports)
    bodies = [_render_routine(module, f, declared) if name not in visible else _Renderer(module, f, declared).render(False) for name, f in module.functions.items()]
    return "\n".join([*sorted(declared), "", *bodies])


@dataclass
class Compiled:
    """Machine code of a module's main function; `tracker` keeps the code alive."""

    address: int
    tracker: Any
    milliseconds: float
    origin: str

    @cached_property
    def function(self) -> Any:
        """main as a ctypes function of three words (ctx, morsels, count); calling it releases the GIL. Who holds it holds the code."""
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self.address)
        function.tracker = self.tracker
        return function


class Compiler:
    """The JIT of the process and its caches. Thread-safe: a kernel is made by one thread, and others that want it wait for it;
    different kernels are made side by side."""

    def __init__(self) -> None:
        _unlock()
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        # 128-bit division and conversions are calls into the compiler's runtime library.
        ctypes.CDLL("libgcc_s.so.1", mode=ctypes.RTLD_GLOBAL)
        self._lock = threading.Lock()
        self._memory: dict[str, Compiled] = {}
        self._making: dict[str, threading.Lock] = {}
        self._routines: dict[tuple[Callable[[], Module], int], Compiled] = {}
        self._jit = binding.create_lljit_compiler()
        self._serial = 0
        self._own = threading.local()
        self.in_foreground = 0
        """How many queries are waiting for code."""
        self._last_foreground = 0.0
        self._cpu = binding.get_host_cpu_name()
        self._features = binding.get_host_cpu_features().flatten()

    def _machine(self, opt: int) -> Any:
        """The target machine of a level; each thread has its own."""
        made = self._own.__dict__
        if opt not in made:
            made[opt] = self._make_machine(opt)
        return made[opt]

    def _context(self) -> Any:
        """What LLVM keeps types and constants in; each thread has its own."""
        if not hasattr(self._own, "context"):
            self._own.context = binding.create_context()
        return self._own.context

    def _make_machine(self, opt: int) -> Any:
        # Wide vectors do not pay for these loops on most machines, and 256 bits are what mixed-width predicates use best.
        return binding.Target.from_default_triple().create_target_machine(cpu=self._cpu, features=self._features, opt=opt, reloc="pic", codemodel="jitdefault", jit=True)

    def _key(self, name: str, opt: int) -> str:
        """The key of the code of a module by its fingerprint, or of code that has a name."""
        parts = (str(VERSION), llvmlite.__version__, self._cpu, self._features, str(opt), name)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def known(self, module: Module, opt: int = FULL) -> Compiled | None:
        """The machine code of `module` if it is in memory or on disk."""
        start, key = time.perf_counter(), self._key(module.fingerprint(), opt)
        with self._lock:
            found = self._memory.get(key)
            if found is None:
                code = read_code(key)
                if code is not None:
                    found = self._memory[key] = self._link(code, module.main, start, "disk")
            return found

    def compile(self, module: Module, opt: int = FULL, check: Callable[[], None] = lambda: None, foreground: bool = True) -> Compiled:
        """The machine code of `module`, from memory, from disk, or made now. `check` is called between the stages, and may raise
        to end the work: LLVM itself cannot be interrupted."""
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
        """The function of a module that is the same in every query; its text is made once in a process. `rows`: it is for so many rows
        now, and few of them are not worth the time that better code takes, unless it is there already."""
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
            found = self._memory.get(key)
            if found is not None:
                return found
            code, origin = read_code(key), "disk"
            if code is None:
                code, origin = self._build(module, opt, check), "llvm"
                write_later(key, lambda: code)
            with self._lock:
                # Another thread may have met the code on disk since it was written there (`known`).
                found = self._memory.get(key)
                if found is None:
                    found = self._memory[key] = self._link(code, module.main, start, origin)
                self._making.pop(key, None)
            return found

    def _build(self, module: Module, opt: int, check: Callable[[], None]) -> bytes:
        machine = self._machine(opt)
        check()
        optimized = self.optimized(module, opt, machine)
        check()
        return machine.emit_object(optimized)

    def store(self, name: str, module: Module, opt: int = FULL) -> None:
        """Keep the code of a compiled module on disk under a name as well: for kernels whose text takes longer to make than to load."""
        code = read_code(self._key(module.fingerprint(), opt))
        if code is not None:
            write_later(self._key(name, opt), lambda: code)

    def stored(self, name: str, opt: int = FULL) -> Compiled | None:
        """The code that `store` has kept under a name, in this process or an earlier one; its main function is `main`."""
        start, key = time.perf_counter(), self._key(name, opt)
        with self._lock:
            if key not in self._memory:
                code = read_code(key)
                if code is None:
                    return None
                self._memory[key] = self._link(code, "main", start, "disk")
            return self._memory[key]

    def optimized(self, module: Module, opt: int, machine: Any = None) -> Any:
        """The LLVM module after the optimisation passes of a level (see `QUICK` and `FULL`)."""
        machine = machine or self._machine(opt)
        llvm_module = binding.parse_assembly(render(module), self._context())
        llvm_module.triple = machine.triple
        llvm_module.data_layout = str(machine.target_data)
        llvm_module.verify()
        options = binding.create_pipeline_tuning_options(speed_level=1)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
        builder = binding.create_pass_builder(machine, options)
        if opt == QUICK:
            passes = binding.create_new_module_pass_manager()
            # Combining instructions makes the code of large joins a fifth faster, but takes half of the time that all else does.
            passes.add_sroa_pass()
            passes.add_simplify_cfg_pass()
        else:
            passes = builder.getModulePassManager()
        passes.run(llvm_module, builder)
        return llvm_module

    def _link(self, code: bytes, main: str, start: float, origin: str) -> Compiled:
        functions = self.pool()
        tracker = self._linked(code, (main,), {name: address for name, (_, address) in HOST_CALLS.items()} | {name: functions[f"pool_{name}"] for name in MEMORY_CALLS} | HOST_SYMBOLS)
        return Compiled(tracker[main], tracker, (time.perf_counter() - start) * 1000, origin)

    def _linked(self, code: bytes, exports: tuple[str, ...], imports: dict[str, int]) -> Any:
        """Object code made part of the process: addresses by name of what it exports, as long as the result lives."""
        self._serial += 1
        library = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in exports:
            library.export_symbol(name)
        for name, address in imports.items():
            library.import_symbol(name, address)
        return library.link(self._jit, f"tsql{self._serial}")

    def pool(self) -> Any:
        """The functions of the memory pool (kernels/runtime/pool.py), which all other code calls in the place of the C library's. There
        is one pool in a process. Its text takes longer to make than its code to load, so its source stands for it."""
        with _pool_lock:
            if not _pool:
                key = self._key(POOL_SOURCE.read_text(), FULL)
                code = read_code(key)
                if code is None:
                    machine = self._machine(FULL)
                    code = machine.emit_object(self.optimized(pool.pool_module(), FULL, machine))
                    write_later(key, lambda: code)
                _pool.append((self._linked(code, pool.EXPORTS, {pool.STATE: memory.STATE}), self._jit))
            return _pool[0][0]

    def llvm_text(self, module: Module, opt: int = FULL) -> str:
        """What `explain LLVM` prints: the optimised module."""
        return str(self.optimized(module, opt))

    def assembly(self, module: Module, opt: int = FULL) -> str:
        """What `explain ASM` prints."""
        machine = self._machine(opt)
        return machine.emit_assembly(self.optimized(module, opt, machine))


_pool: list[tuple[Any, Any]] = []
_pool_lock = threading.Lock()
_compiler: Compiler | None = None
_compiler_lock = threading.Lock()


def compiler() -> Compiler:
    """The compiler of this process, made on first use."""
    global _compiler
    with _compiler_lock:
        if _compiler is None:
            _compiler = Compiler()
        return _compiler


def compile_text(text: str, opt: int = FULL) -> Compiled:
    """Compile KIR text, as Spark tasks do."""
    return compiler().compile(parse(text), opt)


memory.compiled_by.append(lambda: compiler().pool())
