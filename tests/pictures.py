"""What a drawn figure says, and whether its parts are in each other's way."""

from __future__ import annotations


def texts(figure):
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_text().strip()]


def assert_nothing_overlaps(figure):
    """Words, legends and panels (with their labels) are inside the figure, each in a place of its own."""
    boxes = [part.get_window_extent() for part in (*figure.texts, *figure.legends)]
    boxes += [axes.get_tightbbox() for axes in figure.axes]
    for n, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        for other in boxes[:n]:
            width = min(box.x1, other.x1) - max(box.x0, other.x0)
            height = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(width, height) < 1.0  # pixel
