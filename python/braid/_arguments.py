"""Arguments on their way to a library of braid's. ctypes cuts numbers off, ends texts at a NUL and takes None for a
null pointer. Here each of these is a TypeError or a ValueError that names the argument.
"""
import array
import ctypes
import math
import operator

_GREATEST = {ctypes.c_int: 2**31 - 1, ctypes.c_uint32: 2**32 - 1, ctypes.c_uint64: 2**64 - 1,
             ctypes.c_void_p: 2**64 - 1}


def _wrong(argument, value, needed):
    return TypeError(f"{argument} is {value!r}. It must be {needed}")


def whole(argument, value, kind=ctypes.c_uint64):
    """An int that fits into a `kind`. An address is a number, or a c_void_p: None is none of them."""
    if type(value) is int and 0 <= value <= _GREATEST[kind]:  # nearly always, and sooner than what follows
        return value
    if isinstance(value, ctypes.c_void_p):
        value = value.value or 0
    try:
        found = operator.index(value)
    except TypeError:
        raise _wrong(argument, value, "a whole number") from None
    if not 0 <= found <= _GREATEST[kind]:
        raise ValueError(f"{argument} is {value}. It must be from 0 to {_GREATEST[kind]}")
    return found


def number(argument, value, kind=ctypes.c_uint64):
    return kind(whole(argument, value, kind))


def choice(argument, value):
    """A number of an enum: the library says which there are."""
    return number(argument, value, ctypes.c_int)


def wholes(argument, values):
    """An array.array of ints of 64 bits."""
    try:
        return array.array("Q", values if type(values) in (list, tuple) else iter(values))
    except (TypeError, OverflowError):
        for index, value in enumerate(listed(argument, values)):
            whole(f"{argument}[{index}]", value)
        raise


def numbers(argument, values):
    found = wholes(argument, values)
    return (ctypes.c_uint64 * len(found)).from_buffer(found)


def flag(argument, value):
    if value not in (False, True):
        raise _wrong(argument, value, "True or False")
    return int(value)


def text(argument, value):
    """Its bytes: names of files and of notifications may be no UTF-8, and have them as `surrogateescape`."""
    if not isinstance(value, str):
        raise _wrong(argument, value, "a text (str)")
    if "\0" in value:
        raise ValueError(f"{argument} is {value!r}. It must not contain a NUL, at which the library's texts end")
    return value.encode(errors="surrogateescape")


def text_or_none(argument, value):
    """Null for None, and for the empty text."""
    return None if value is None else text(argument, value) or None


def texts(argument, values):
    if isinstance(values, (str, bytes)):  # its letters would be taken for names
        raise TypeError(f"{argument} is {values!r}, one text where several may be: write [{values!r}]")
    found = [text(f"{argument}[{index}]", value) for index, value in enumerate(listed(argument, values))]
    return (ctypes.c_char_p * len(found))(*found)


def data(argument, value):
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _wrong(argument, value, "bytes")
    return bytes(value)


def parts(argument, value, names):
    """A tuple of as many parts as there are names."""
    if not isinstance(value, (tuple, list)) or len(value) != len(names.split(", ")):
        raise _wrong(argument, value, f"({names})")
    return value


def instance(argument, value, kind):
    if not isinstance(value, kind):
        raise _wrong(argument, value, f"a {kind.__name__}")
    return value


def instances(argument, values, kind):
    """An array of structures."""
    found = [instance(f"{argument}[{index}]", value, kind) for index, value in enumerate(listed(argument, values))]
    return (kind * len(found))(*found)


def listed(argument, values):
    try:
        return list(values)
    except TypeError:
        raise _wrong(argument, values, "a list. It may be empty") from None


def seconds(argument, value):
    """A float; infinity is the longest time there is."""
    if isinstance(value, (str, bytes)):
        raise _wrong(argument, value, "a number of seconds")
    try:
        found = float(value)
    except TypeError:
        raise _wrong(argument, value, "a number of seconds") from None
    if math.isnan(found):
        raise ValueError(f"{argument} is {value}. It must be a number of seconds")
    return found


def limit_us(argument, value):
    """What has passed is 0, which waits for nothing: a number below 0 would be the longest time there is."""
    us = seconds(argument, value) * 1e6
    return _GREATEST[ctypes.c_uint64] if us >= 2**64 else max(0, math.ceil(us))


def limit(argument, value):
    return ctypes.c_uint64(limit_us(argument, value))


def deadline_us(argument, value):
    """Of a request 0 means none, so that a deadline which has passed is the shortest there is."""
    return 0 if value == 0 else max(1, limit_us(argument, value))


class Structure(ctypes.Structure):
    """Its fields are checked as arguments are, where it is made from numbers."""

    def __init__(self, *values, **named):
        fields = self._fields_
        given = {**{name: value for (name, _), value in zip(fields, values)}, **named}
        kinds = dict(fields)
        for name, value in given.items():
            if kinds.get(name) in _GREATEST:
                whole(name, value, kinds[name])
        super().__init__(*values, **named)
