"""The grammar of joins in time: ASOF JOIN .. TOLERANCE, CLIP JOIN, and FOR VALID_TIME AS OF behind a table."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tsql.grammar.time.base import TimeParser
from tsql.grammar.time.check_parameters import check_interval
from tsql.grammar.time.nodes import AsOf, AsofJoin, ClipJoin

_PERIODS = ("VALID_TIME", "SYSTEM_TIME")
_AS_OF = "FOR VALID_TIME AS OF x, behind the name of a table that has a PERIOD"
_SIDES = ("LEFT", "RIGHT", "FULL", "INNER", "SEMI", "ANTI")


class TimeJoinParser(TimeParser):
    """Joins in time."""

    def _parse_join(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        start = self._curr
        is_clip = self._ahead("CLIP", "JOIN")
        if is_clip:
            self._advance()
        elif self._word() in _SIDES and self._word(1) == "CLIP" and self._word(2) == "JOIN":
            self._refuse(
                f"a CLIP JOIN has no {self._word()}: it keeps every left row, and only ends it earlier",
                start,
                "l CLIP JOIN r ON l.key = r.key",
            )
        node = super()._parse_join(*args, **kwargs)
        if node is None:
            return None
        if is_clip:
            return self._clip_join(node, start)
        if node.args.get("method") == "ASOF":
            return self._asof_join(node, start)
        self._refuse_tolerance()
        if self._ahead("MATCH_RECOGNIZE", "("):
            self._refuse(
                "MATCH_RECOGNIZE stands behind one table",
                self._curr,
                "FROM (SELECT .. FROM a JOIN b ON ..) MATCH_RECOGNIZE (..)",
            )
        return node

    def _clip_join(self, node: exp.Join, start: Token) -> ClipJoin:
        if node.args.get("on") is None:
            self._refuse("CLIP JOIN needs ON with the keys of both sides", node.this, "l CLIP JOIN r ON l.key = r.key")
        return self._timed(ClipJoin(**{**node.args, "method": "CLIP"}), start)

    def _asof_join(self, node: exp.Join, start: Token) -> AsofJoin:
        side, kind = node.args.get("side") or "", node.args.get("kind") or ""
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
            self._refuse(f"an ASOF JOIN is INNER or LEFT, not {' '.join(w for w in (side, kind) if w)}", start)
        if node.args.get("on") is None and not node.args.get("using"):
            if self._ahead("TOLERANCE"):
                self._refuse("TOLERANCE stands at the end of the join, behind ON or USING", self._curr)
            self._refuse("an ASOF JOIN needs ON or USING", node.this, "ASOF JOIN r ON l.key = r.key AND l.ts >= r.ts")
        tolerance = None
        if self._take("TOLERANCE"):
            first = self._curr
            tolerance = self._parse_bitwise()
            if tolerance is None:
                self._expected("an interval behind TOLERANCE")
            if isinstance(tolerance, exp.Literal) and tolerance.is_string:
                self._refuse("TOLERANCE takes an interval, such as INTERVAL '1 second', or a number", first)
            check_interval(self, tolerance, "TOLERANCE", first, "bound")
            if self._ahead("TOLERANCE"):
                self._refuse("TOLERANCE is given twice", self._curr)
        return self._timed(AsofJoin(**node.args, tolerance=tolerance), start)

    def _parse_version(self):  # type: ignore[no-untyped-def]
        start = self._curr
        if self._word() != "FOR" or self._word(1) not in _PERIODS:
            named = (
                f"FOR {self._word(1)} AS OF"
                if self._word() == "FOR" and self._word(2) == "AS" and self._word(3) == "OF"
                else None
            )
            if named is not None or super()._parse_version() is not None:
                self._refuse(f"{named or f'{start.text} AS OF'} is not known", start, _AS_OF)
            return None
        word = self._word(1)
        self._advance(2)
        if not self._take("AS", "OF"):
            self._expected(f"AS OF behind FOR {word}")
        at = self._parse_bitwise()
        if at is None:
            self._expected("a time behind AS OF")
        return self._timed(AsOf(this=at), start)

    def _parse_historical_data(self):  # type: ignore[no-untyped-def]
        start = self._curr
        found = super()._parse_historical_data()
        if found is not None:
            self._refuse(f"{start.text.upper()} (..) is not known", start, _AS_OF)
        return found

    def _parse_table(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        node = super()._parse_table(*args, **kwargs)
        if node is not None and self._curr and self._curr.token_type == TokenType.FOR and self._word(1) in _PERIODS:
            word = self._word(1)
            if isinstance(node, exp.Table) and node.args.get("version"):
                self._refuse(f"FOR {word} is given twice", self._curr)
            if isinstance(node, exp.Table) and node.alias:
                self._refuse(
                    "the alias stands behind AS OF", self._curr, f"{node.name} FOR {word} AS OF x AS {node.alias}"
                )
            self._refuse(f"FOR {word} AS OF stands behind the name of a table that has a PERIOD", self._curr)
        return node
