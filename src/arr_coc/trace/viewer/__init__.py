"""The viewer: JavaScript that draws views of traces in a browser, without a model and without a network.

    assets()              the viewer's own JavaScript and CSS; the script sets the global `ArrCocViewer`
    page(views, title)    one HTML file with everything in it

`ArrCocViewer.mount(element, view, {detail, onselect, cell})`, `.pair(element, a, b, {labels})`,
`.history(element, views)` and `.album(element, views)` draw what `Trace.view()` gives;
`.look(element, view)` what `trace.view.look_view` gives, a choice without an answer.
"""

from arr_coc.trace.viewer.page import assets, page

__all__ = ["assets", "page"]
