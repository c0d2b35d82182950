"""One side of the race in `compress.py`: compresses a folder in a process of its own and tells how long that took.

    python compressing.py ours|incumbent FOLDER OUT TOKENIZER TARGET [--extractive]

Both summarise by the same scripted text. The clock runs from the first row read to the last row written; loading
libraries and the tokenizer is not counted, memory is counted from the start of the process.
"""

import asyncio
import contextlib
import io
import json
import sys
import time
from pathlib import Path

from measure import peak_mib

SUMMARY = "[CONTEXT SUMMARY]: " + "The assistant read files, ran tests and found that one of them fails. " * 40


def ours(folder: Path, out: Path, tokenizer: Path, target: int, extractive: bool) -> float:
    """Our command's own parts, with a scripted model."""
    from stemma.compress.counters import open_counter
    from stemma.compress.extractive import ExtractiveSummarizer
    from stemma.compress.files import Source, compress_files
    from stemma.compress.run import Run
    from stemma.compress.sampling import Sample
    from stemma.compress.settings import Compression, Settings
    from stemma.compress.summary import ModelSummarizer
    from stemma.models.scripted import ScriptedModel

    settings = Settings(compression=Compression(target_max_tokens=target))
    summarizer = ExtractiveSummarizer() if extractive else ModelSummarizer(ScriptedModel(lambda request: SUMMARY))

    async def compress() -> float:
        counter = await open_counter(str(tokenizer), hub=Path())
        begun = time.perf_counter()
        await compress_files(Source(folder, Sample()), out, Run(settings, counter, summarizer), {})
        return time.perf_counter() - begun

    return asyncio.run(compress())


def incumbent(folder: Path, out: Path, tokenizer: Path, target: int, extractive: bool) -> float:
    """The incumbent's compressor with its summary call replaced, which would else need a network."""
    import trajectory_compressor as theirs

    async def summary(self: object, content: str, metrics: object) -> str:
        return SUMMARY

    theirs.TrajectoryCompressor._generate_summary_async = summary
    theirs.TrajectoryCompressor._init_summarizer = lambda self: None
    config = theirs.CompressionConfig()
    config.tokenizer_name, config.trust_remote_code, config.target_max_tokens = str(tokenizer), False, target
    with contextlib.redirect_stdout(io.StringIO()):
        compressor = theirs.TrajectoryCompressor(config)
        begun = time.perf_counter()
        compressor.process_directory(folder, out)
    return time.perf_counter() - begun


def main() -> None:
    """Run one side and print what it took."""
    side, folder, out, tokenizer, target = sys.argv[1:6]
    run = {"ours": ours, "incumbent": incumbent}[side]
    seconds = run(Path(folder), Path(out), Path(tokenizer), int(target), "--extractive" in sys.argv)
    print(json.dumps({"seconds": seconds, "peak": peak_mib()}))


if __name__ == "__main__":
    main()
