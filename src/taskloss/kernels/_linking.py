"""Compilation of kernels that only other kernels call: lowered once, then linked into every caller.

numba optimizes every function and makes machine code of it, then does both again in each function that calls it, with everything
below it. For a function that Python never calls the first is wasted, and on a deep tree of calls that is most of the time. Here
such a function ends as plain LLVM code, which is optimized and turned into machine code as a part of its callers.
"""

from __future__ import annotations

import io
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


class _LinkedLibrary(JITCodeLibrary):
    """Code that is neither optimized nor turned into machine code by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(NativeLowering):
    """Lowering to LLVM code, without the steps that prepare a function for calls from Python."""

    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        # Callers find a function by its entry point, which numba wants to be a built-in function. This one raises a TypeError
        # if Python calls it.
        entry_point = io.StringIO().write
        state.targetctx.insert_user_function(entry_point, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=entry_point)
        return True


class LinkedCompiler(CompilerBase):
    """numba's compiler with :class:`_LinkedLowering`, for the option ``pipeline_class`` of ``numba.njit``."""

    def define_pipelines(self) -> list[PassManager]:
        pipeline = PassManager("linked")
        for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            pipeline.add_pass(_LinkedLowering if step is NativeLowering else step, description)
        pipeline.finalize()
        return [pipeline]
