-- The store of stemma. Everything but `graph` and `placed` is append-only; hashes are SHA-256, 32 bytes.
-- Ids are small integers inside the file; the hash is what a thing is called outside it.

CREATE TABLE message (          -- every message body, once, whoever says it
    id    INTEGER PRIMARY KEY,  -- rises in the order of arrival, so that neighbours in a line are mostly neighbours here
    hash  BLOB NOT NULL UNIQUE, -- the message's id: SHA-256 over all its fields, keys sorted
    body  BLOB NOT NULL         -- compact JSON in the author's key order; lone surrogates as three bytes
);

CREATE TABLE line (             -- a path from a root: base[:head] + added + base[-tail:]
    id     INTEGER PRIMARY KEY, -- always greater than its base's, so lines cannot be cyclic
    base   INTEGER REFERENCES line, -- the line this one came after; if it keeps nothing of it, `added` is all of this one
    head   INTEGER NOT NULL,    -- how many first messages of the base it keeps
    tail   INTEGER NOT NULL,    -- how many last messages of the base it keeps
    added  BLOB NOT NULL,       -- msgpack [first message.id, count, first, count, …]: runs of messages in between
    length INTEGER NOT NULL,    -- how many messages the line has
    depth  INTEGER NOT NULL,    -- how many bases stand behind it; bounded, so that reading is linear
    tip    BLOB NOT NULL        -- the id of its last node: the chain of hashes over all its messages
);

CREATE TABLE toolset (          -- tools offered to a model, once for all calls that had them
    id    INTEGER PRIMARY KEY,  -- inner number
    hash  BLOB NOT NULL UNIQUE, -- SHA-256 over `body`
    body  BLOB NOT NULL         -- JSON list of tool definitions, in the order and form offered
);

CREATE TABLE call (             -- one model call
    id          INTEGER PRIMARY KEY, -- inner number, in the order of arrival
    hash        BLOB NOT NULL UNIQUE, -- the call's id: over saw, made, and all that the columns below say
    saw         BLOB NOT NULL,  -- id of the last node of its context; the root's id if that was empty
    made        BLOB NOT NULL,  -- id of the node of its reply
    event       BLOB NOT NULL,  -- random: tells it from a call equal in everything; copies of one call share it
    toolset     INTEGER REFERENCES toolset, -- the tools offered; NULL: none were named
    body        BLOB NOT NULL,  -- canonical JSON: model, sampling parameters, finish reason, usage, timing, cost, extra
    prompt_base INTEGER REFERENCES call, -- an earlier call that the prompt begins like; NULL: none
    prompt_shared INTEGER NOT NULL, -- how many ids of what that call saw and sampled it begins with
    prompt_ids  BLOB,           -- the prompt as the engine saw it, after those; as narrow.py writes ids; NULL: not known
    sampled_ids BLOB,           -- what it sampled, written in the same way
    logprobs    BLOB            -- float32 little-endian: one for each sampled id
);

CREATE TABLE run (              -- a named collection of graphs
    id       INTEGER PRIMARY KEY, -- inner number
    name     TEXT NOT NULL UNIQUE, -- chosen by the user
    metadata BLOB NOT NULL,     -- free-form JSON
    seal     BLOB NOT NULL      -- SHA-256 over the columns above
);

CREATE TABLE graph (            -- a movable tip: what the user calls a conversation
    id       INTEGER PRIMARY KEY, -- inner number
    name     TEXT UNIQUE,       -- chosen by the user; NULL for a subagent's conversation
    run      INTEGER REFERENCES run, -- the run it belongs to, if any
    line     INTEGER REFERENCES line, -- its current line; NULL if it was always empty
    metadata BLOB NOT NULL,     -- free-form JSON
    seal     BLOB NOT NULL      -- SHA-256 over all that belongs to the graph; see `seal_graph` in saving.py
);

CREATE TABLE version (          -- supersedes: a line of the graph that an edit replaced
    graph       INTEGER NOT NULL REFERENCES graph, -- whose
    number      INTEGER NOT NULL, -- 0 is the oldest
    line        INTEGER NOT NULL REFERENCES line, -- the line that was left
    at          INTEGER NOT NULL, -- index of the first message that was changed
    reason      TEXT NOT NULL,  -- edit, compaction, resample, repair, …
    replaced    INTEGER NOT NULL, -- how many messages from `at` on were taken out
    replacement BLOB NOT NULL,  -- the messages put in their place: runs, as in line.added
    PRIMARY KEY (graph, number)
) WITHOUT ROWID;

CREATE TABLE placed (           -- where in its graph a call's reply stands
    graph   INTEGER NOT NULL REFERENCES graph, -- whose
    number  INTEGER NOT NULL,   -- the order in which the graph recorded its calls
    call    INTEGER NOT NULL REFERENCES call, -- which
    at      INTEGER NOT NULL,   -- index of the reply in its line
    version INTEGER,            -- the version that line is; NULL while it is the current one
    PRIMARY KEY (graph, number)
) WITHOUT ROWID;

CREATE TABLE contains (         -- a tool result's subagent conversations
    graph   INTEGER NOT NULL REFERENCES graph, -- the conversation that has the tool result
    number  INTEGER NOT NULL,   -- the order in which they were linked
    message INTEGER NOT NULL REFERENCES message, -- the tool result, with the tool_call_id that spawned them
    child   INTEGER NOT NULL REFERENCES graph, -- the subagent's conversation
    PRIMARY KEY (graph, number)
) WITHOUT ROWID;
