"""The studio: a page on this machine with an editor, a result that settles, its chart and its plan.

`serve` starts it for a session; `Session.studio` and the command `tsql studio` call it. The page and the server talk as
`docs/design/studio.md` says.

    with tsql.studio.serve(db) as studio:
        print(studio.address)
"""

from __future__ import annotations

from tsql.studio.server import Studio, serve

__all__ = ["Studio", "serve"]
