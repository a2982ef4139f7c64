"""The learning-curve view of the explorer as one would write it in Dash, for benchmarks.

    pip install dash && python benchmarks/explorer_dash.py PORT

The same lines with the same points at the package's default accuracy, by the same functions.
"""

import sys

import numpy as np
import plotly.graph_objects as go
from dash import Dash, Input, Output, dcc, html

from sparsetoken import Task, Training, curve, floor_curve

app = Dash(__name__)
app.layout = html.Div([dcc.Slider(1, 10, value=5, id="strength"), dcc.Graph(id="graph")])


@app.callback(Output("graph", "figure"), Input("strength", "value"))
def draw(strength: float) -> go.Figure:
    """Return the figure for one place of the slider."""
    task, training = Task(10, 1, strength), Training(4.0, 4.0, ridge=1e-5, query_step=50.0)
    values = np.geomspace(0.1, 100, 25)
    figure = go.Figure(layout={"xaxis_type": "log"})
    for name in ("attention", "pooled", "vectorised"):
        found = curve(task, training, values=values.tolist(), classifier=name)
        figure.add_scatter(x=found.values, y=found.column("test_error"), name=name)
    floor = floor_curve(task, values=(training.alpha0 + values).tolist())
    figure.add_scatter(x=values, y=floor.column("test_error"), name="floor")
    return figure


if __name__ == "__main__":
    app.run(port=int(sys.argv[1]), debug=False)
