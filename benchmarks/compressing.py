"""One side of the race in `compress.py`: compresses a folder in a process of its own and tells how long that took.

    python compressing.py ours|incumbent FOLDER OUT TOKENIZER TARGET BASE_URL

Both ask the same scripted endpoint for summaries; ours without a BASE_URL ("") makes extractive ones. The clock runs
from the first row read to the last row written; loading libraries and the tokenizer is not counted, memory is counted
from the start of the process.
"""

import asyncio
import contextlib
import io
import json
import sys
import time
from pathlib import Path

from measure import peak_mib


def ours(folder: Path, out: Path, tokenizer: Path, target: int, base_url: str) -> float:
    """Our command's own parts."""
    from stemma.compress.counters import open_counter
    from stemma.compress.extractive import ExtractiveSummarizer
    from stemma.compress.files import Source, compress_files
    from stemma.compress.run import Run
    from stemma.compress.sampling import Sample
    from stemma.compress.settings import Compression, Settings
    from stemma.compress.summary import ModelSummarizer
    from stemma.models.openai_api import OpenAIModel

    settings = Settings(compression=Compression(target_max_tokens=target))

    async def compress() -> float:
        model = OpenAIModel("scripted", base_url) if base_url else None
        summarizer = ModelSummarizer(model) if model else ExtractiveSummarizer()
        counter = await open_counter(str(tokenizer), hub=Path())
        begun = time.perf_counter()
        await compress_files(Source(folder, Sample()), out, Run(settings, counter, summarizer), {})
        seconds = time.perf_counter() - begun
        if model:
            await model.close()
        return seconds

    return asyncio.run(compress())


def incumbent(folder: Path, out: Path, tokenizer: Path, target: int, base_url: str) -> float:
    """The incumbent's compressor as it is."""
    import trajectory_compressor as theirs

    config = theirs.CompressionConfig()
    config.tokenizer_name, config.trust_remote_code, config.target_max_tokens = str(tokenizer), False, target
    config.base_url, config.summarization_model, config.api_key_env = base_url, "scripted", "STEMMA_BENCH_KEY"
    with contextlib.redirect_stdout(io.StringIO()):
        compressor = theirs.TrajectoryCompressor(config)
        begun = time.perf_counter()
        compressor.process_directory(folder, out)
    return time.perf_counter() - begun


def main() -> None:
    """Run one side and print what it took."""
    side, folder, out, tokenizer, target, base_url = sys.argv[1:]
    run = {"ours": ours, "incumbent": incumbent}[side]
    seconds = run(Path(folder), Path(out), Path(tokenizer), int(target), base_url)
    print(json.dumps({"seconds": seconds, "peak": peak_mib()}))


if __name__ == "__main__":
    main()
