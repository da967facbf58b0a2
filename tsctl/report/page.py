"""The page of the report: its frame, its style, and the few lines of script that draw a topic when it is opened."""

from typing import Final

# `str.format` fills it in, so braces of style and script are doubled.
PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 1200px; padding: 12px; color: #222; }}
h1 {{ font-size: 1.35em; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.15em; border-bottom: 1px solid #ddd; margin-top: 1.6em; }}
h4 {{ margin: .8em 0 0; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; }}
dt {{ color: #666; }} dd {{ margin: 0; overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; font-size: .9em; }}
th, td {{ text-align: left; vertical-align: top; padding: 3px 10px 3px 0; border-bottom: 1px solid #eee; }}
td {{ max-width: 34em; overflow-wrap: anywhere; }}
td.key {{ font-family: monospace; font-size: .85em; min-width: 12em; }}
.wide {{ overflow-x: auto; }}
.tall {{ max-height: 26em; overflow-y: scroll; resize: vertical; }}
.tall {{ border: 1px solid #ddd; border-radius: 4px; padding: 0 8px; }}
/* A shadow at the lower or upper edge shows that there is more; it is covered at the end of the list. */
.tall {{ background: linear-gradient(#fff 30%, #fff0) top/100% 36px local no-repeat,
  linear-gradient(#fff0, #fff 70%) bottom/100% 36px local no-repeat,
  linear-gradient(#0003, #0000) top/100% 10px scroll no-repeat,
  linear-gradient(#0000, #0003) bottom/100% 10px scroll no-repeat; }}
.tall thead th {{ position: sticky; top: 0; background: #fff; }}
#findings-table td:nth-child(4) {{ min-width: 16em; }}
@media (max-width: 700px) {{
  #findings-table thead {{ display: none; }}
  #findings-table, #findings-table tbody, #findings-table tr, #findings-table td {{ display: block; }}
  #findings-table td {{ max-width: none; border: 0; padding: 1px 0; }}
  #findings-table tr {{ border-bottom: 1px solid #ddd; padding: 6px 0; }}
}}
.chip {{ border-radius: 9px; padding: 1px 8px; white-space: nowrap; color: #fff; background: #777; }}
.dot {{ display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .5em; }}
.dot {{ background: #4c9a6a; }}
.verdict {{ font-size: 1.15em; padding: 8px 12px; border-left: 6px solid #4c9a6a; background: #f4f4f4; }}
.data-loss {{ border-color: #d00000; }} .chip.data-loss, .dot.data-loss {{ background: #d00000; }}
.damaged {{ border-color: #b4500f; }} .chip.damaged, .dot.damaged {{ background: #b4500f; }}
.suspicious {{ border-color: #8a6d00; }} .chip.suspicious, .dot.suspicious {{ background: #8a6d00; }}
.chip.information {{ background: #2f6f8f; }}
details.topic {{ border-bottom: 1px solid #ddd; padding: 4px 0; }}
details.topic > summary {{ cursor: pointer; font-weight: 600; padding: 6px 0; overflow-wrap: anywhere; }}
summary small {{ font-weight: 400; color: #666; }}
.chart {{ width: 100%; overflow: hidden; }}
input {{ font: inherit; width: 100%; max-width: 24em; padding: 4px 6px; }}
</style>
</head>
<body>
<h1>{title}</h1>
{verdict}
<dl>{facts}</dl>
<h2>Findings</h2>
{findings}
<h2>Size and growth</h2>
<p>Bytes of segments by the UTC day of their newest record.</p>
<div class="chart" id="growth"></div>
<p>The largest topics.</p>
<div class="chart" id="sizes"></div>
<h2>Coverage</h2>
<p><input id="filter" placeholder="topics whose name holds ..." aria-label="topics whose name holds"></p>
{topics}
<script>{plotly}</script>
<script>
"use strict";
const charts = {charts};
// Named one by one: a later library's button that sends data elsewhere must not come by itself.
const buttons = [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]];
const shown = window.innerWidth > 700 ? "hover" : false;
const options = {{responsive: true, displaylogo: false, modeBarButtons: buttons, displayModeBar: shown}};
function draw(id) {{
  const place = document.getElementById(id);
  if (place && charts[id] && !place.dataset.drawn) {{
    place.dataset.drawn = "1";
    Plotly.newPlot(place, charts[id].data, charts[id].layout, options);
  }}
}}
function drawTopic(topic) {{
  if (topic.open) {{ draw("offsets-" + topic.dataset.number); draw("times-" + topic.dataset.number); }}
}}
draw("growth");
draw("sizes");
for (const topic of document.querySelectorAll("details.topic")) {{
  topic.addEventListener("toggle", () => drawTopic(topic));
  drawTopic(topic);
}}
document.getElementById("filter").addEventListener("input", (event) => {{
  for (const topic of document.querySelectorAll("details.topic")) {{
    topic.hidden = !topic.dataset.name.includes(event.target.value);
  }}
}});
</script>
</body>
</html>
"""
