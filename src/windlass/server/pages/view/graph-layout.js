/**
 * Layered graph layout: each job is in the layer after its last dependency. Within a layer, jobs
 * are near their neighbors, so that few edges cross.
 */

/** @typedef {{ id: string, dependsOn: string[] }} Vertex */
/** @typedef {{ id: string, layer: number, row: number }} Placed `row` may be fractional */

const SWEEPS = 6;

/**
 * @param {Vertex[]} vertices
 * @returns {{ placed: Map<string, Placed>, layers: number, widest: number }}
 */
export function layered(vertices) {
  const known = new Map(vertices.map((vertex) => [vertex.id, vertex]));
  const depth = depths(vertices, known);
  /** @type {string[][]} */
  const rows = [];
  for (const { id } of vertices) (rows[depth.get(id) ?? 0] ??= []).push(id);
  const layers = rows.map((row) => row ?? []);
  order(layers, vertices, known);
  const widest = Math.max(0, ...layers.map((row) => row.length));
  /** @type {Map<string, Placed>} */
  const placed = new Map();
  layers.forEach((row, layer) =>
    row.forEach((id, nth) => placed.set(id, { id, layer, row: nth + (widest - row.length) / 2 })),
  );
  return { placed, layers: layers.length, widest };
}

/**
 * Return the longest path to each job from a job without dependencies. Jobs form no cycles; in
 * malformed data, jobs of a cycle get no depth.
 *
 * @param {Vertex[]} vertices
 * @param {Map<string, Vertex>} known
 */
function depths(vertices, known) {
  /** @type {Map<string, number>} */
  const depth = new Map();
  /** @type {Map<string, number>} */
  const open = new Map();
  /** @type {Map<string, string[]>} */
  const children = new Map();
  for (const { id, dependsOn } of vertices) {
    const parents = dependsOn.filter((parent) => known.has(parent));
    open.set(id, parents.length);
    for (const parent of parents) {
      const siblings = children.get(parent);
      if (siblings === undefined) children.set(parent, [id]);
      else siblings.push(id);
    }
  }
  const ready = [...open].filter(([, count]) => count === 0).map(([id]) => id);
  for (const id of ready) {
    const here = depth.get(id) ?? 0;
    depth.set(id, here);
    for (const child of children.get(id) ?? []) {
      depth.set(child, Math.max(depth.get(child) ?? 0, here + 1));
      const left = (open.get(child) ?? 0) - 1;
      open.set(child, left);
      if (left === 0) ready.push(child);
    }
  }
  return depth;
}

/**
 * @param {string[][]} layers
 * @param {Vertex[]} vertices
 * @param {Map<string, Vertex>} known
 */
function order(layers, vertices, known) {
  /** @type {Map<string, string[]>} */
  const neighbors = new Map(vertices.map(({ id }) => [id, []]));
  for (const { id, dependsOn } of vertices) {
    for (const parent of dependsOn.filter((id) => known.has(id))) {
      neighbors.get(id)?.push(parent);
      neighbors.get(parent)?.push(id);
    }
  }
  /** @type {Map<string, number>} */
  const position = new Map();
  const record = (/** @type {string[]} */ row) =>
    row.forEach((id, nth) => position.set(id, nth - (row.length - 1) / 2));
  layers.forEach(record);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const row of sweep % 2 ? [...layers].reverse() : layers) {
      const middle = new Map(
        row.map((id) => [id, mean(neighbors.get(id) ?? [], position, position.get(id) ?? 0)]),
      );
      row.sort((first, second) => (middle.get(first) ?? 0) - (middle.get(second) ?? 0));
      record(row);
    }
  }
}

/**
 * @param {string[]} ids
 * @param {Map<string, number>} position
 * @param {number} fallback
 */
const mean = (ids, position, fallback) =>
  ids.length === 0
    ? fallback
    : ids.reduce((sum, id) => sum + (position.get(id) ?? 0), 0) / ids.length;
