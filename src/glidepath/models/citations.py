"""The sources that a reply names, as each of the four endpoints writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from glidepath.models.content import count
from glidepath.values import Citation

if TYPE_CHECKING:
    from google.genai.types import GroundingMetadata


def anthropic_citation(given: Mapping[str, Any], start: int, end: int) -> Citation:
    """A source of the text between these places."""
    title = given.get("title") or given.get("document_title") or given.get("source") or ""
    return Citation(str(given.get("url") or ""), str(title), str(given.get("cited_text") or ""), start, end)


def chat_citation(annotation: Mapping[str, Any]) -> Citation:
    """A source, from an annotation of a message."""
    given = annotation.get("url_citation") or {}
    url, title, quote = [str(given.get(field) or "") for field in ("url", "title", "content")]
    start, end = given.get("start_index"), given.get("end_index")
    return Citation(url, title, quote, start if type(start) is int else None, end if type(end) is int else None)


def responses_citation(given: Mapping[str, Any], start: int) -> Citation:
    """A source, from an annotation of an item whose text begins at this place."""
    places = [given.get("start_index"), given.get("end_index")]
    begin, end = [start + place if type(place) is int else None for place in places]
    title = given.get("title") or given.get("filename") or ""
    return Citation(str(given.get("url") or ""), str(title), str(given.get("quote") or ""), begin, end)


def google_citations(given: GroundingMetadata, text: str) -> Iterable[Citation]:
    """The sources of a grounded reply, each with the part of the text that it supports, if one is named."""
    written = text.encode()
    sources = [
        getattr(chunk, "web", None) or getattr(chunk, "retrieved_context", None)
        for chunk in given.grounding_chunks or ()
    ]
    named = [(str(getattr(one, "uri", None) or ""), str(getattr(one, "title", None) or "")) for one in sources]
    cited: set[int] = set()
    for support in given.grounding_supports or ():
        quote = str(getattr(support.segment, "text", None) or "")
        begin, end = _place_of(quote, support.segment, text, written)
        for place in support.grounding_chunk_indices or ():
            if place < len(named):
                cited.add(place)
                yield Citation(named[place][0], named[place][1], quote, begin, end)
    for place, source in enumerate(named):
        if place not in cited:
            yield Citation(source[0], source[1])


def _place_of(quote: str, segment: object, text: str, written: bytes) -> tuple[int | None, int | None]:
    """Where a quote is in the text. Google counts bytes within a part: if that does not fit, the text is searched."""
    if not quote:
        return None, None
    end = count(segment, "end_index")
    start = count(segment, "start_index")
    begin = len(written[:start].decode("utf-8", "ignore"))
    if written[start:end] != quote.encode():
        begin = text.find(quote)
        if begin < 0 or text.find(quote, begin + 1) >= 0:
            return None, None
    return begin, begin + len(quote)
