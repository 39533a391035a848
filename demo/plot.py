"""A line plot of bandwidth by copy size, written as SVG with nothing but the standard library."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 84, 190, 92, 74
FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
INK, FAINT, GRID = "#222222", "#666666", "#e4e4e4"


def size_text(size_bytes):
    """1048576 to '1 MB': sizes are powers of two, as in braid's options."""
    for suffix, unit in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size_bytes >= unit:
            return f"{size_bytes / unit:g} {suffix}"
    return f"{size_bytes} B"


def tick_step(highest):
    """A step of 1, 2 or 5 times a power of ten that gives 5 to 10 ticks up to `highest`."""
    rough = highest / 8
    power = 10 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


class Frame:
    """Maps sizes (log 2) and bandwidths (linear, from zero) to places in the picture."""

    def __init__(self, sizes, highest):
        self.low, self.high = math.log2(min(sizes)), math.log2(max(sizes))
        self.step = tick_step(highest)
        self.top = math.ceil(highest * 1.02 / self.step) * self.step

    def x(self, size_bytes):
        span = (self.high - self.low) or 1
        return LEFT + (math.log2(size_bytes) - self.low) / span * (WIDTH - LEFT - RIGHT)

    def y(self, gbps):
        return HEIGHT - BOTTOM - gbps / self.top * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, size=14, anchor="start", color=INK, extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-family="{FONT}" font-size="{size}" '
            f'text-anchor="{anchor}" fill="{color}" {extra}>{escape(words)}</text>')


def axes(frame, sizes):
    parts = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    gbps = 0.0
    while gbps <= frame.top + 1e-9:
        y = frame.y(gbps)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(text(LEFT - 10, y + 5, f"{gbps:g}", anchor="end"))
        gbps += frame.step
    last_label = -math.inf
    for size in sizes:
        x = frame.x(size)
        parts.append(f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 6}" '
                     f'stroke="{FAINT}"/>')
        if x - last_label >= 68:
            last_label = x
            parts.append(text(x, bottom + 24, size_text(size), size=13, anchor="middle"))
    parts.append(f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="{FAINT}"/>')
    parts.append(text((LEFT + right) / 2, HEIGHT - 18, "size of one copy (log₂ scale)",
                      anchor="middle"))
    middle = (TOP + bottom) / 2
    parts.append(text(24, middle, "bandwidth, GB/s (10⁹ bytes a second)", anchor="middle",
                      extra=f'transform="rotate(-90 24 {middle:.1f})"'))
    return parts


def line(frame, series):
    """One series: {"label", "color", "under", "dashed", "points": [(size_bytes, gbps)]}.

    Two directions often coincide. The one below has larger marks, and dashes where the other has
    gaps, so that both are seen.
    """
    offset = 0 if series["under"] else 7
    dash = f' stroke-dasharray="7 7" stroke-dashoffset="{offset}"' if series["dashed"] else ""
    radius, width = (5.5, 4) if series["under"] else (3, 2)
    places = [(frame.x(size), frame.y(gbps)) for size, gbps in series["points"]]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{series["color"]}" '
             f'stroke-width="{width}" stroke-linejoin="round"{dash}/>']
    fill = "#ffffff" if series["dashed"] else series["color"]
    for x, y in places:
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" '
                     f'stroke="{series["color"]}" stroke-width="2"/>')
    return parts


def end_labels(frame, all_series):
    """The name and the last value of each line at its right end, moved apart where they touch."""
    gap = 19
    wanted = sorted((frame.y(series["points"][-1][1]), index)
                    for index, series in enumerate(all_series))
    places = []
    for y, index in wanted:
        places.append((max(y, places[-1][0] + gap) if places else y, index))
    overflow = max(0.0, places[-1][0] - (HEIGHT - BOTTOM - 4))
    parts = []
    for y, index in places:
        series = all_series[index]
        words = f'{series["label"]}  {series["points"][-1][1]:.1f}'
        parts.append(text(WIDTH - RIGHT + 14, y - overflow + 5, words, color=series["color"],
                          extra='font-weight="bold"'))
    return parts


def draw(title, subtitle, all_series):
    """The whole picture as SVG text."""
    sizes = sorted({size for series in all_series for size, _ in series["points"]})
    highest = max(gbps for series in all_series for _, gbps in series["points"])
    frame = Frame(sizes, highest)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
             text(LEFT, 38, title, size=20, extra='font-weight="bold"'),
             text(LEFT, 62, subtitle, color=FAINT)]
    parts += axes(frame, sizes)
    for series in all_series:
        parts += line(frame, series)
    parts += end_labels(frame, all_series)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
