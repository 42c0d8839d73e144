// Reads a profile with the package pprof-format, and prints its samples as JSON.
const fs = require("fs");
const zlib = require("zlib");
const { Profile } = require("pprof-format");

const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(process.argv[2])));
const text = (index) => profile.stringTable.strings[Number(index)];
const byId = (list) => new Map(list.map((item) => [Number(item.id), item]));
const functions = byId(profile.function);
const locations = byId(profile.location);
const mappings = byId(profile.mapping);

const samples = profile.sample.map((sample) => ({
    // Innermost first.
    stack: sample.locationId.flatMap((id) => {
        const location = locations.get(Number(id));
        if (Number(location.mappingId) !== 0 && !mappings.has(Number(location.mappingId))) {
            throw new Error(`location ${id} has no mapping`);
        }
        return location.line.map((line) => text(functions.get(Number(line.functionId)).name));
    }),
    values: sample.value.map(Number),
    labels: Object.fromEntries(
        sample.label.map((label) => [text(label.key), Number(label.str) ? text(label.str) : Number(label.num)]),
    ),
}));
const types = profile.sampleType.map((type) => `${text(type.type)}/${text(type.unit)}`);
process.stdout.write(JSON.stringify({ types, samples, period: Number(profile.period) }));
