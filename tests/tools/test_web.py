"""The web tools search by each provider and read pages as text; what goes wrong is told to the model."""

import asyncio
import json

import pytest

from faultserver import in_loop
from pages import site
from stemma.tools.running import run_tool
from stemma.tools.web import web_tools
from stemma.tools.web_access import WebAccess, WebNotSet

FOUND = {
    "searxng": {"results": [{"title": "Two", "url": "http://e.org/2", "content": "a  prime"}, {"title": "Three"}]},
    "tavily": {"results": [{"title": "Two", "url": "http://e.org/2", "content": "a prime", "score": 1.0}, {}]},
    "brave": {"web": {"results": [{"title": "Two", "url": "http://e.org/2", "description": "a prime"}, {}]}},
    "serper": {"organic": [{"title": "Two", "link": "http://e.org/2", "snippet": "a prime", "position": 1}, {}]},
}
ASKED = {
    "searxng": ("GET", "/search?q=small+primes&format=json", None, None),
    "tavily": ("POST", "/search", ("Authorization", "Bearer KEY"), {"query": "small primes", "max_results": 1}),
    "brave": ("GET", "/search?q=small+primes&count=1&text_decorations=false", ("X-Subscription-Token", "KEY"), None),
    "serper": ("POST", "/search", ("X-API-KEY", "KEY"), {"q": "small primes", "num": 1}),
}


def as_json(value):
    return {"text": json.dumps(value), "content_type": "application/json"}


async def use(access, name, **arguments):
    tools = {tool.name: tool for tool in web_tools(access)}
    return await run_tool(tools, name, json.dumps(arguments))


@pytest.mark.parametrize("provider", FOUND)
def test_each_provider_is_asked_in_its_own_words_and_answers_in_ours(provider):
    async def run():
        async with site(search=as_json(FOUND[provider])) as here:
            address = here.url if provider == "searxng" else f"{here.url}/search"
            access = WebAccess(provider=provider, search_url=address, api_key="KEY")
            result = await use(access, "web_search", query="small primes", limit=1)
            assert (result.ok, result.text) == (True, "1. Two\nhttp://e.org/2\na prime")
            ((method, path, headers, body),) = here.asked
            wanted_method, wanted_path, header, json_body = ASKED[provider]
            assert (method, path) == (wanted_method, wanted_path)
            assert header is None or headers[header[0]] == header[1]
            assert (json.loads(body) if body else None) == json_body

    asyncio.run(run())


@pytest.mark.parametrize("before", [0, 180, 195])
def test_a_provider_that_echoes_its_key_is_quoted_without_it(before):
    async def run():
        key = "Zx81Qw92Er73Ty64Ui55"
        async with site(search={"status": 401, "text": "." * before + key + "." * 50}) as here:
            access = WebAccess(provider="brave", search_url=f"{here.url}/search", api_key=key)
            result = await use(access, "web_search", query="x")
            assert "answered 401" in result.text
            assert not any(key[at : at + 3] in result.text for at in range(len(key) - 2))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"status": 403, "text": "Forbidden"}, "answered 403: Forbidden"),
        ({"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}, "answered 302"),
        ({"text": "<html>"}, "not JSON"),
        (as_json({"results": None}), "no results"),
        (as_json([1]), "no results"),
        (as_json({"results": [1, "x"]}), "no results"),
    ],
)
def test_a_search_that_fails_says_so(response, said):
    async def run():
        async with site(search=response) as here:
            result = await use(WebAccess(search_url=here.url), "web_search", query="x")
            assert said in result.text
            assert result.ok == (said == "no results")

    asyncio.run(run())


@in_loop
async def test_a_search_that_does_not_come_in_time_or_cannot_be_asked_is_told():
    async def slow(request):
        await asyncio.sleep(5)

    async with site(search=slow) as here:
        result = await use(WebAccess(search_url=here.url, seconds=0.3), "web_search", query="x")
        assert "within 0.3 s" in result.text
    assert "the search failed" in (await use(WebAccess(search_url=here.url), "web_search", query="x")).text


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (WebAccess(), "set web.search_url"),
        (WebAccess(provider="tavily"), "set web.api_key_env"),
        (WebAccess(provider="altavista"), "choose one of searxng, tavily, brave, serper"),
    ],
)
def test_what_is_not_set_is_told_before_a_model_ever_searches(access, said):
    with pytest.raises(WebNotSet, match=said):
        web_tools(access)


def test_the_key_is_not_shown():
    assert "KEY" not in repr(WebAccess(provider="brave", api_key="KEY"))


@in_loop
async def test_pages_are_read_as_text_and_one_that_fails_does_not_hide_the_others():
    pages = {
        "html": {"text": "<title>T</title><h1>Hi</h1><a href='x'>y</a>", "content_type": "text/html"},
        "json": as_json({"a": 1}),
        "png": {"body": b"\x89PNG", "content_type": "image/png"},
    }
    async with site(**pages) as here:
        access = WebAccess(search_url=here.url, allow_private=True)
        both = await use(access, "web_extract", urls=[f"{here.url}/html", f"{here.url}/json"])
        assert both.ok
        assert both.text == (f'{here.url}/html\nT\n\n# Hi\n\n[y]({here.url}/x)\n\n---\n\n{here.url}/json\n{{"a": 1}}')
        mixed = await use(access, "web_extract", urls=[f"{here.url}/png", f"{here.url}/json", "file:///etc/passwd"])
        assert not mixed.ok
        assert "image/png, not text" in mixed.text
        assert '{"a": 1}' in mixed.text
        assert "no http or https" in mixed.text


@in_loop
async def test_long_pages_are_cut_and_the_cut_is_counted():
    async with site(long={"text": "x" * 1000}) as here:
        access = WebAccess(search_url=here.url, allow_private=True, page_chars=100)
        result = await use(access, "web_extract", urls=[f"{here.url}/long"])
        assert result.cut == 900
        assert result.text.endswith("x" * 100 + "\n… [900 characters left out]")


@in_loop
async def test_private_pages_and_too_many_pages_are_refused():
    async with site(secret={"text": "SECRET"}) as here:
        access = WebAccess(search_url=here.url)
        result = await use(access, "web_extract", urls=[f"{here.url}/secret"])
        assert not result.ok
        assert "private address" in result.text
        assert here.asked == []
        assert "between 1 and 5" in (await use(access, "web_extract", urls=["http://e.org"] * 6)).text
        assert "between 1 and 5" in (await use(access, "web_extract", urls=[])).text
