"""Object code as it is stored: the code, the names that it exports, and the names that it imports.

Runtime routines are a third to a half of the operations to compile. Quick code inlines nothing, so it imports them from
the kernel that had them first (`Compiler._build` in llvm.py). So the code of a kernel may need that of others, which it
names by key. A routine's name is a digest of what it does (`shared_names` in render.py), so any copy will do."""

from __future__ import annotations

import json
from dataclasses import field

from tsql.kernels.codegen.elf import DamagedObject, check_object
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class ObjectCode:
    """`exports`: the main function, then routines. `imports`: routines, each with the key of code that has it."""

    code: bytes
    exports: tuple[str, ...]
    imports: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        head = json.dumps([self.exports, self.imports]).encode()
        return len(head).to_bytes(4, "little") + head + self.code

    @classmethod
    def decode(cls, data: bytes) -> ObjectCode:
        end = 4 + int.from_bytes(data[:4], "little")
        try:
            exports, imports = json.loads(data[4:end])
            kept = cls(data[end:], tuple(exports), dict(imports))
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedObject(str(error)) from error
        if not kept.exports or not all(
            isinstance(name, str) for name in (*kept.exports, *kept.imports, *kept.imports.values())
        ):
            raise DamagedObject("object code exports its main function, and names are text")
        check_object(kept.code)
        return kept
