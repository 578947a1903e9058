"""The entry ``functions:`` of a network file: a Python file that is read here and run only by nodes that allow it."""

from __future__ import annotations

from pathlib import Path

from headwater.deploy.network.models.network import NetworkPart
from headwater.deploy.network.yaml_file import Sheet
from headwater.node.user_functions import offer_file
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.function_files import DescribedFunctions, described, digest_of, digests_of, shown
from headwater.protocol.functions import is_offered
from headwater.protocol.network import Network


def functions_of(sheet: Sheet, part: NetworkPart) -> DescribedFunctions | None:
    """What the file offers, by its text; mistakes are noted in the sheet."""
    if part.functions is None:
        return None
    place, file = part.at("functions"), sheet.path.parent / str(part.functions)
    if file.suffix != ".py":
        sheet.error(place, f"{part.functions} is not a Python file", "write the name of one, as in my_functions.py")
        return None
    try:
        content = file.read_bytes()
    except OSError as error:
        sheet.error(place, f"cannot read {part.functions}: {error.strerror}", "it is looked for beside this file")
        return None
    try:
        return described(content, str(file.absolute()))
    except HeadwaterError as error:
        sheet.error(place, str(error), "correct that file")
        return None


def refuse_functions(network: Network, *, allowed: bool, how: str = "add --allow-functions") -> None:
    """ConfigError if the network's rules call functions and that is not allowed; ``how``: what allows it."""
    functions = network.functions
    if functions is None or allowed:
        return
    if digests_of(network.rules, (sink.subscription for sink in network.sinks)):
        raise ConfigError(
            f"the rules call functions in {functions.file} (hash {shown(functions.digest)}), which is Python code; "
            f"{how} if you trust that file"
        )


def allow_functions(network: Network, *, allowed: bool, how: str = "add --allow-functions") -> None:
    """Have the functions that the network's rules call at hand in this process; ConfigError if it may not, or cannot,
    run them."""
    refuse_functions(network, allowed=allowed, how=how)
    functions = network.functions
    if functions is None or not allowed or is_offered(functions.digest):
        return
    file = Path(functions.file)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    if digest_of(content) != functions.digest:
        raise ConfigError(f"{file} has changed since the network file was read; start again")
    offer_file(content, file)
