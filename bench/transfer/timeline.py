"""Throughput over time, and the faults in it: figures of `samples` (stream.py), and a drawing as SVG."""
COLORS = ("#2a6fbb", "#2e8b57", "#8e5bb5", "#b8860b", "#5f6a72", "#d46a9f")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 420, 60, 190, 30, 45


class Timeline:
    """Bytes that were delivered by a time, between samples by straight lines."""

    def __init__(self, samples):
        self.times = [time for time, _ in samples]
        self.ways = [list(bytes_) for _, bytes_ in samples]

    def bytes_at(self, time, way=None):
        low, high = 0, len(self.times) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.times[middle] <= time else (low, middle)
        values = [sum(self.ways[i]) if way is None else self.ways[i][way] for i in (low, high)]
        span = self.times[high] - self.times[low]
        share = min(1, max(0, (time - self.times[low]) / span)) if span > 0 else 1
        return values[0] + share * (values[1] - values[0])

    def gbps(self, begin, end, way=None):
        return (self.bytes_at(end, way) - self.bytes_at(begin, way)) / (end - begin) / 1e9

    def reaches(self, gbps, begin, end, window=0.02, step=0.002):
        """After how long every window until `end` carries so much; nothing: the last one does not."""
        begun, at = begin, begin
        while at + window <= end:
            if self.gbps(at, at + window) < gbps:
                begun = at + step
            at += step
        return begun - begin if begun + window <= end else None

    def bins(self, begin, end, width):
        count = int((end - begin) / width)
        return [self.gbps(begin + i * width, begin + (i + 1) * width) for i in range(count)]


def draw(path, title, timeline, names, faults, width=0.02):
    """`faults`: (begin, end, name) of each. The whole is black, ways are coloured."""
    begin, end = timeline.times[0], timeline.times[-1]
    lines = [(None, "all", "#111111")] + [(i, name, COLORS[i % len(COLORS)]) for i, name in enumerate(names)]
    bins = {way: [timeline.gbps(begin + i * width, begin + (i + 1) * width, way)
                  for i in range(int((end - begin) / width))] for way, _, _ in lines}
    most = max(max(values, default=0) for values in bins.values()) * 1.1 or 1

    def x(time):
        return LEFT + (time - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)

    def y(gbps):
        return HEIGHT - BOTTOM - gbps / most * (HEIGHT - TOP - BOTTOM)

    def text(at_x, at_y, words, more=""):
        return (f'<text x="{at_x:.1f}" y="{at_y:.1f}" font-family="DejaVu Sans, sans-serif" font-size="12" '
                f'{more}>{words}</text>')

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', text(LEFT, 18, title)]
    for fault_begin, fault_end, _ in faults:
        svg.append(f'<rect x="{x(fault_begin):.1f}" y="{TOP}" width="{x(fault_end) - x(fault_begin):.1f}" '
                   f'height="{HEIGHT - TOP - BOTTOM}" fill="#c0392b" fill-opacity="0.15"/>')
    for i in range(5):
        gbps = most * i / 4
        svg.append(f'<line x1="{LEFT}" y1="{y(gbps):.1f}" x2="{WIDTH - RIGHT}" y2="{y(gbps):.1f}" stroke="#ddd"/>')
        svg.append(text(LEFT - 8, y(gbps) + 4, f"{gbps:.2f}", 'text-anchor="end"'))
    for i in range(11):
        time = begin + (end - begin) * i / 10
        svg.append(text(x(time), HEIGHT - BOTTOM + 18, f"{time - begin:.1f}", 'text-anchor="middle"'))
    svg.append(text(LEFT, HEIGHT - 8, "seconds; GB/s that were delivered; shaded: " +
                    ", ".join(dict.fromkeys(name for *_, name in faults))))
    for row, (way, name, color) in enumerate(lines):
        points = " ".join(f"{x(begin + (i + 0.5) * width):.1f},{y(gbps):.1f}" for i, gbps in enumerate(bins[way]))
        svg.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1"/>')
        svg.append(text(WIDTH - RIGHT + 10, TOP + 16 * (row + 1), name, f'fill="{color}"'))
    path.write_text("\n".join(svg) + "\n</svg>\n")
