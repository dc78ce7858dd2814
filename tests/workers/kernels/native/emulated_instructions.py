"""Instructions of AVX-512 that LLVM does not take apart, as functions of LLVM's of the same meaning.

Each follows the operation in Intel's manual (volume 2). Limitation: what kernels do not use, other masks and roundings among
it, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

_LANES: Final = range(16)
#: LLVM's functions that functions here call -> their declarations, for modules that have none.
_DECLARATIONS: Final = {
    "llvm.floor.v16f64": 'declare <16 x double> @"llvm.floor.v16f64"(<16 x double>)\n',
    "llvm.fma.v16f32": 'declare <16 x float> @"llvm.fma.v16f32"(<16 x float>, <16 x float>, <16 x float>)\n',
}
#: What needs AVX-512 or one of its extensions.
_TARGETED: Final = re.compile(r'@"(llvm\.x86\.avx512[^"]*)"')
#: Assembly without instructions that keeps LLVM from knowing a vector of 512 bits, or from moving code across one: a processor
#: without AVX-512 has no register for it, and LLVM ends the process.
_HIDDEN: Final = re.compile(r'call (<[^>]+>) asm\s*"", "=v,0"\(<[^>]+> ([^\n]*)\)')
_FENCE: Final = re.compile(r'(asm sideeffect\s*"", "=r,0)(?:,v)+(,~\{memory\}"\(i64 [^,)]+),[^\n]*\)')
_IN_VECTORS: Final = re.compile(r'asm [^\n]*"[^"\n]*[=,]v[,"][^\n]*')


def emulated(code: str, flags: frozenset[str]) -> str:
    """Return a module with functions in the place of the instructions that a processor with ``flags`` lacks.

    Raises NotImplementedError, with the name, for an instruction that has no function here.
    """
    if "avx512f" not in flags:
        code = _FENCE.sub(r"\1\2)", _HIDDEN.sub(r"bitcast \1 \2 to \1", code))
        if (other := _IN_VECTORS.search(code)) is not None:
            raise NotImplementedError(f"assembly with vectors has no other form in {__name__}: {other[0][:200]}")
    for name in sorted({*_TARGETED.findall(code)}):
        if name not in _FUNCTIONS:
            raise NotImplementedError(
                f"{name} has no function in {__name__}: add one, from its definition in the manual"
            )
        flag, define = _FUNCTIONS[name]
        if flag not in flags:
            code = re.sub(rf'^declare [^@]*@"{re.escape(name)}"\(.*$', "", code, flags=re.MULTILINE)
            code = code.replace(f'@"{name}"', f'@"emulated.{name}"') + define(f'@"emulated.{name}"')
    for name, declaration in _DECLARATIONS.items():
        if f'@"{name}"(' in code and not re.search(rf'^declare [^@]*@"{re.escape(name)}"', code, re.MULTILINE):
            code += declaration
    return code


def _permute(name: str) -> str:
    """VPERMPS: each lane takes the lane of ``%from`` whose number is in the lowest four bits."""
    lines = ["%n = and <16 x i32> %numbers, splat (i32 15)"]
    for lane in _LANES:
        before = f"%r{lane - 1}" if lane else "poison"
        lines += [
            f"%n{lane} = extractelement <16 x i32> %n, i32 {lane}",
            f"%e{lane} = extractelement <16 x float> %from, i32 %n{lane}",
            f"%r{lane} = insertelement <16 x float> {before}, float %e{lane}, i32 {lane}",
        ]
    return _function(name, "<16 x float>", "<16 x float> %from, <16 x i32> %numbers", lines, "%r15")


def _permute_words(name: str) -> str:
    """VPERMI2W: each lane takes the lane, of 64 in two vectors, whose number is in the lowest six bits."""
    numbers = ", ".join(f"i32 {lane}" for lane in range(64))
    lines = [
        f"%both = shufflevector <32 x i16> %low, <32 x i16> %high, <64 x i32> <{numbers}>",
        "%n = and <32 x i16> %numbers, splat (i16 63)",
    ]
    for lane in range(32):
        before = f"%r{lane - 1}" if lane else "poison"
        lines += [
            f"%n{lane} = extractelement <32 x i16> %n, i32 {lane}",
            f"%e{lane} = extractelement <64 x i16> %both, i16 %n{lane}",
            f"%r{lane} = insertelement <32 x i16> {before}, i16 %e{lane}, i32 {lane}",
        ]
    return _function(name, "<32 x i16>", "<32 x i16> %low, <32 x i16> %numbers, <32 x i16> %high", lines, "%r31")


def _multiply_pairs(name: str) -> str:
    """VPMADDWD: the sums of the products of two neighbouring numbers of 16 bits, which wrap."""
    lines = [
        "%x = sext <32 x i16> %left to <32 x i32>",
        "%y = sext <32 x i16> %right to <32 x i32>",
        "%p = mul <32 x i32> %x, %y",
        *_every("%p", "i32", 32, 2),
        "%r = add <16 x i32> %p.0, %p.1",
    ]
    return _function(name, "<16 x i32>", "<32 x i16> %left, <32 x i16> %right", lines, "%r")


def _multiply_bytes(name: str, lanes: int = 16) -> str:
    """VPDPBUSD: a sum plus the products of four neighbouring bytes, without sign on the left, with sign on the right.

    Shifts take bytes and products out of wider lanes: LLVM takes four times as long for shuffles of single bytes.
    """
    sums, words, given = f"<{lanes} x i32>", f"<{2 * lanes} x i16>", f"<{4 * lanes} x i8>"
    lines = [
        f"%x = bitcast {given} %left to {words}",
        f"%y = bitcast {given} %right to {words}",
        f"%x0 = and {words} %x, splat (i16 255)",
        f"%x1 = lshr {words} %x, splat (i16 8)",
        f"%shifted = shl {words} %y, splat (i16 8)",
        f"%y0 = ashr {words} %shifted, splat (i16 8)",
        f"%y1 = ashr {words} %y, splat (i16 8)",
    ]
    total = "%sum"
    for number in range(2):  # no product exceeds 16 bits: 255 * -128 is the largest
        lines += [
            f"%p{number} = mul {words} %x{number}, %y{number}",
            f"%q{number} = bitcast {words} %p{number} to {sums}",
            f"%s{number} = shl {sums} %q{number}, splat (i32 16)",
            f"%l{number} = ashr {sums} %s{number}, splat (i32 16)",
            f"%h{number} = ashr {sums} %q{number}, splat (i32 16)",
            f"%a{number} = add {sums} {total}, %l{number}",
            f"%b{number} = add {sums} %a{number}, %h{number}",
        ]
        total = f"%b{number}"
    return _function(name, sums, f"{sums} %sum, {given} %left, {given} %right", lines, total)


def _pack(name: str, bits: int, least: int, most: int) -> str:
    """VPACKSSDW, VPACKSSWB, VPACKUSWB: numbers of ``bits`` with half of them, the closest that there is.

    In each part of 128 bits, numbers of the left vector come before those of the right one.
    """
    lanes, part = 512 // bits, 128 // bits
    places = [side + lane + i for lane in range(0, lanes, part) for side in (0, lanes) for i in range(part)]
    numbers, given = ", ".join(f"i32 {place}" for place in places), f"<{lanes} x i{bits}>"
    whole, result = f"<{2 * lanes} x i{bits}>", f"<{2 * lanes} x i{bits // 2}>"
    lines = [
        f"%both = shufflevector {given} %left, {given} %right, <{2 * lanes} x i32> <{numbers}>",
        f"%below = icmp slt {whole} %both, splat (i{bits} {least})",
        f"%raised = select <{2 * lanes} x i1> %below, {whole} splat (i{bits} {least}), {whole} %both",
        f"%above = icmp sgt {whole} %raised, splat (i{bits} {most})",
        f"%closest = select <{2 * lanes} x i1> %above, {whole} splat (i{bits} {most}), {whole} %raised",
        f"%r = trunc {whole} %closest to {result}",
    ]
    return _function(name, result, f"{given} %left, {given} %right", lines, "%r")


def _add_differences(name: str) -> str:
    """VPSADBW: the sums of the differences of eight neighbouring bytes without sign, each without its sign."""
    lines = [
        "%more = icmp ugt <64 x i8> %left, %right",
        "%over = sub <64 x i8> %left, %right",
        "%under = sub <64 x i8> %right, %left",
        "%d = select <64 x i1> %more, <64 x i8> %over, <64 x i8> %under",
        "%w = zext <64 x i8> %d to <64 x i64>",
        *_every("%w", "i64", 64, 8),
        "%s1 = add <8 x i64> %w.0, %w.1",
        *(f"%s{part} = add <8 x i64> %s{part - 1}, %w.{part}" for part in range(2, 8)),
    ]
    return _function(name, "<8 x i64>", "<64 x i8> %left, <64 x i8> %right", lines, "%s7")


def _scale(name: str) -> str:
    """VSCALEFPS: ``%x`` times two to the power of the whole part of ``%power``, rounded once, as the processor is set.

    A product of 0 and an infinite power, or of an infinite number and the power of minus infinity, is NaN. A quiet NaN times
    an infinite power is infinity or 0.
    """
    lines = [
        "%d = fpext <16 x float> %x to <16 x double>",
        "%p = fpext <16 x float> %power to <16 x double>",
        '%whole = call <16 x double> @"llvm.floor.v16f64"(<16 x double> %p)',
        "%small = fcmp olt <16 x double> %whole, splat (double 1.0e3)",
        "%most = select <16 x i1> %small, <16 x double> %whole, <16 x double> splat (double 1.0e3)",
        "%large = fcmp ogt <16 x double> %most, splat (double -1.0e3)",
        "%n = select <16 x i1> %large, <16 x double> %most, <16 x double> splat (double -1.0e3)",
        "%i = fptosi <16 x double> %n to <16 x i64>",
        "%biased = add <16 x i64> %i, splat (i64 1023)",
        "%bits = shl <16 x i64> %biased, splat (i64 52)",
        "%finite = bitcast <16 x i64> %bits to <16 x double>",
        "%endless = fcmp oeq <16 x double> %p, splat (double 0x7FF0000000000000)",
        "%f1 = select <16 x i1> %endless, <16 x double> %p, <16 x double> %finite",
        "%none = fcmp oeq <16 x double> %p, splat (double 0xFFF0000000000000)",
        "%factor = select <16 x i1> %none, <16 x double> zeroinitializer, <16 x double> %f1",
        "%product = fmul <16 x double> %d, %factor",
        "%x.bits = bitcast <16 x float> %x to <16 x i32>",
        f"%x.size = and <16 x i32> %x.bits, splat (i32 {0x7FFFFFFF})",
        f"%quiet = icmp uge <16 x i32> %x.size, splat (i32 {0x7FC00000})",
        "%infinite = or <16 x i1> %endless, %none",
        "%ignored = and <16 x i1> %quiet, %infinite",
        "%scaled = select <16 x i1> %ignored, <16 x double> %factor, <16 x double> %product",
        "%unknown = fcmp uno <16 x double> %p, %p",
        "%found = select <16 x i1> %unknown, <16 x double> %p, <16 x double> %scaled",
        "%rounded = fptrunc <16 x double> %found to <16 x float>",
        "%lanes = bitcast i16 %mask to <16 x i1>",
        "%r = select <16 x i1> %lanes, <16 x float> %rounded, <16 x float> %other",
    ]
    given = "<16 x float> %x, <16 x float> %power, <16 x float> %other, i16 %mask, i32 %rounding"
    return _function(name, "<16 x float>", given, lines, "%r")


def _multiply_bfloats(name: str) -> str:
    """VDPBF16PS: a sum plus the products of two neighbouring bf16, the second one first, each addition fused.

    Numbers below the normal range are 0, before and after.
    """
    lines = [
        "%a = bitcast <32 x bfloat> %left to <16 x i32>",
        "%b = bitcast <32 x bfloat> %right to <16 x i32>",
        "%s.bits = bitcast <16 x float> %sum to <16 x i32>",
        *_flushed("s"),
    ]
    for of in "ab":
        lines += [
            f"%{of}0.bits = shl <16 x i32> %{of}, splat (i32 16)",
            f"%{of}1.bits = and <16 x i32> %{of}, splat (i32 -65536)",
            *_flushed(f"{of}0"),
            *_flushed(f"{of}1"),
        ]
    fused = 'call <16 x float> @"llvm.fma.v16f32"'
    lines += [
        f"%m = {fused}(<16 x float> %a1, <16 x float> %b1, <16 x float> %s)",
        "%t.bits = bitcast <16 x float> %m to <16 x i32>",
        *_flushed("t"),
        f"%l = {fused}(<16 x float> %a0, <16 x float> %b0, <16 x float> %t)",
        "%r.bits = bitcast <16 x float> %l to <16 x i32>",
        *_flushed("r"),
    ]
    given = "<16 x float> %sum, <32 x bfloat> %left, <32 x bfloat> %right"
    return _function(name, "<16 x float>", given, lines, "%r")


def _flushed(name: str) -> list[str]:
    """Return what makes ``%name`` of the bits ``%name.bits``: a zero of the same sign of numbers below the normal range."""
    return [
        f"%{name}.size = and <16 x i32> %{name}.bits, splat (i32 {0x7FFFFFFF})",
        f"%{name}.sign = and <16 x i32> %{name}.bits, splat (i32 {-0x80000000})",
        f"%{name}.small = icmp ult <16 x i32> %{name}.size, splat (i32 {0x00800000})",
        f"%{name}.kept = select <16 x i1> %{name}.small, <16 x i32> %{name}.sign, <16 x i32> %{name}.bits",
        f"%{name} = bitcast <16 x i32> %{name}.kept to <16 x float>",
    ]


def _every(value: str, element: str, lanes: int, step: int) -> Iterable[str]:
    """Return what makes ``value.0``, ``value.1``, ... of every ``step``-th lane, from the first, the second, ..."""
    for first in range(step):
        numbers = ", ".join(f"i32 {lane}" for lane in range(first, lanes, step))
        kind = f"<{lanes} x {element}>"
        yield f"{value}.{first} = shufflevector {kind} {value}, {kind} poison, <{lanes // step} x i32> <{numbers}>"


def _function(name: str, result: str, arguments: str, lines: Iterable[str], value: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"\ndefine internal {result} {name}({arguments}) alwaysinline {{\n{body}  ret {result} {value}\n}}\n"


#: LLVM's name of an instruction -> the flag in /proc/cpuinfo of processors that have it, and what writes its function.
_FUNCTIONS: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "llvm.x86.avx512.permvar.sf.512": ("avx512f", _permute),
    "llvm.x86.avx512.vpermi2var.hi.512": ("avx512bw", _permute_words),
    "llvm.x86.avx512.pmaddw.d.512": ("avx512bw", _multiply_pairs),
    "llvm.x86.avx512.packssdw.512": ("avx512bw", partial(_pack, bits=32, least=-(2**15), most=2**15 - 1)),
    "llvm.x86.avx512.packsswb.512": ("avx512bw", partial(_pack, bits=16, least=-128, most=127)),
    "llvm.x86.avx512.packuswb.512": ("avx512bw", partial(_pack, bits=16, least=0, most=255)),
    "llvm.x86.avx512.psad.bw.512": ("avx512bw", _add_differences),
    "llvm.x86.avx512.mask.scalef.ps.512": ("avx512f", _scale),
    "llvm.x86.avx512.vpdpbusd.256": ("avx_vnni", partial(_multiply_bytes, lanes=8)),
    "llvm.x86.avx512.vpdpbusd.512": ("avx512_vnni", _multiply_bytes),
    "llvm.x86.avx512bf16.dpbf16ps.512": ("avx512_bf16", _multiply_bfloats),
}
