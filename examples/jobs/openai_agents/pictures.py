from base64 import b64encode
from pathlib import Path

from agents import Agent, Runner

agent = Agent(name="viewer", model="gpt-5-mini")
folder = Path(__file__).parent.parent
photo = b64encode((folder / "dot.png").read_bytes()).decode()
report = b64encode((folder / "page.pdf").read_bytes()).decode()
# by hand: the parts of the request
content = [
    {"type": "input_text", "text": "What are these?"},
    {"type": "input_image", "image_url": f"data:image/png;base64,{photo}", "detail": "auto"},
    {"type": "input_file", "filename": "page.pdf", "file_data": f"data:application/pdf;base64,{report}"},
]
print(Runner.run_sync(agent, [{"role": "user", "content": content}]).final_output)
