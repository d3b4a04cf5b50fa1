"""KIR, the kernel language: its operations and text (`kir.py`), how one writes it (`lang.py`), what is legal
(`spec.py`), what it means (`interp.py`), its LLVM (`render.py`), and how that is compiled, cached and run
(`llvm.py`)."""
