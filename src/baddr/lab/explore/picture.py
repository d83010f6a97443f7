"""A scene as a PNG that a page can hold."""

import base64
import io
import threading

from baddr.domains.render import Renderer, Scene, pixels

_ONE_AT_A_TIME = threading.Lock()  # matplotlib is not made for threads


def drawn(renderer: Renderer, scene: Scene) -> str:
    """In base64."""
    from PIL import Image

    with _ONE_AT_A_TIME:
        buffer = io.BytesIO()
        Image.fromarray(pixels(renderer, scene)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
