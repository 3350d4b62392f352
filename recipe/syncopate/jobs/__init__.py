"""
A sweep as a Sisyphus graph: thin jobs over the pure functions of the other packages.

:mod:`training` trains, :mod:`produce` makes data, :mod:`collect` reads one training's numbers into ``results.json``,
:mod:`table` builds the table from them, :mod:`register` puts a sweep into the graph. Only here Sisyphus and i6_core are
imported.
"""
