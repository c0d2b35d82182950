"""A small web on loopback: pages as a test gives them, and a note of every request."""

from contextlib import asynccontextmanager

from aiohttp import web


class Site:
    """One running server; `url` is its front page, `asked` the requests that came."""

    def __init__(self, pages):
        self.pages, self.asked, self.url = pages, [], ""

    async def answer(self, request):
        self.asked.append((request.method, request.path_qs, dict(request.headers), await request.text()))
        page = self.pages.get(request.path)
        if callable(page):
            return await page(request)
        return web.Response(**(page if page is not None else {"status": 404}))


@asynccontextmanager
async def site(**pages):
    """Serve `pages`, whose names are paths without the slash; a page is what a response is made of, or a handler."""
    found = Site({f"/{name}": page for name, page in pages.items()})
    server = web.Server(found.answer)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    found.url = f"http://127.0.0.1:{listening._server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        await runner.cleanup()
