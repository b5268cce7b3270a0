"""What a browser shows of a page of HTML."""

from html.parser import HTMLParser

from hypothesis import strategies as st

text = st.text(st.characters(exclude_categories=[]), max_size=40) | st.lists(
    st.sampled_from(["<", ">", "</td>", "<script>", "&", "&lt;", '"', "'", "$", "{}", "\n", "a"])
).map("".join)


class Reader(HTMLParser):
    """Reads HTML as a browser does: the tags, and the text inside each element of one kind."""

    def __init__(self, html, element=None):
        super().__init__()
        self.tags, self.attributes, self.said, self.open, self.inside = [], [], "", [], []
        self._element = element
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.open.append(tag)
        if tag == self._element:
            self.inside.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said += data
        if self._element in self.open:
            self.inside[-1] += data

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data!r}")

    handle_decl = handle_pi = unknown_decl = handle_comment
