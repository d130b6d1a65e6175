"""Bugs that once went unnoticed, or nearly: planted one at a time, each turns the test beside it red.

They guard the tests. Only tests that need no server and take milliseconds are here; ``tests/simulation/mutants.py``,
``tests/stages/mutants.py`` and ``tests/kv/key_faults.py`` plant bugs for whole histories.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import pytest

from api import test_tail_patience as patience
from cli import test_newest_rows as newest_rows
from client import test_lake_status as lake_behind
from client.plan import test_left_out as left_out
from client.read import test_reading as reading
from client.write import test_fast_lane as lanes
from client.write import test_writer as writing
from coordinator import test_coordinator as coordinating
from coordinator import test_key_tables as key_tables
from coordinator import test_lake_records as lake_records
from coordinator import test_operations as operations
from coordinator import test_races as races
from coordinator import test_replicas as copies
from coordinator import test_sinks as sinks
from coordinator import test_term as terms
from coordinator import test_tiering as rounds
from lake.rounds import test_parts as parts
from lake.upkeep import test_compaction as compaction
from log import test_alike_runs as alike_runs
from log import test_groups as log_groups
from log import test_retention as retention
from metadata import test_sharing_map as sharing_map
from model import test_predicate_text as texts
from model import test_types as types
from moving import test_avro_file as avro_file
from moving import test_table_metadata as table_metadata
from planted.planting import planted
from record import test_batch_check as batch_check
from record import test_filter as filters
from record import test_statistics as statistics
from replicas import test_pull_sessions as pulls
from replication import test_bucket_entry as bucket_entries
from replication import test_rebalance as rebalances
from replication import test_stage_journal as journals
from rpc import test_flow as flow
from rpc import test_login as login
from runtime import test_tasks as tasks
from server.background import test_decision_rollout as rollouts
from server.calls import test_lookup_limits as lookup_limits
from server.links import test_pull_answers as answers
from server.links import test_server_links as links
from sql import test_streamed_rows as streamed_rows
from strom.aio import tail as aio_tail
from strom.cli import scan
from strom.client.admin import lake_status
from strom.client.plan import offsets
from strom.client.read import tail
from strom.client.write import fast_lane, write_call
from strom.coordinator import alter, lake, new_copies, partitions, tables, tiering
from strom.coordinator import coordinator as coordinator_view
from strom.coordinator import sinks as sink_commands
from strom.coordinator.operations import losses
from strom.lake.rounds import parts as round_parts
from strom.lake.upkeep import compaction_plan
from strom.log import chain_writer, entry_run, groups
from strom.log.copies import pulled
from strom.metadata import sharing_map as maps
from strom.model import type_text
from strom.model import types as model_types
from strom.model.filters import predicate_text
from strom.moving import avro_file as avro
from strom.moving import table_metadata as moved
from strom.record import columns as record_columns
from strom.record import filter as record_filter
from strom.record import statistics as record_statistics
from strom.replication import bucket_entry, rebalance, stage_journal
from strom.rpc import budget, login_delays
from strom.rpc import flow as rpc_flow
from strom.runtime import tasks as owned
from strom.server.background import decision_rollout
from strom.server.calls.keys import bucket_lookup
from strom.server.links import server_links
from strom.server.replicas import pull_answers, pull_sessions
from strom.sql import streaming
from strom.tablet import publishing, stages
from strom.testing import memory_transport
from tablet import test_copies as tablet_copies
from tablet import test_groups as tablet_groups
from tablet import test_skipping as skipping
from testing import test_memory_network as memory_network


class Bug(NamedTuple):
    """A rule that is broken, and the test that must see it."""

    where: ModuleType
    old: str
    new: str
    seen_by: Callable[[], object]


def case(run: Callable[..., object], *arguments: object) -> Callable[[], object]:
    """A test with the arguments of one of its cases."""
    return lambda: run(*arguments)


BUGS = {
    "one reason to read on is enough": Bug(
        rpc_flow,
        "self.holds |= reason",
        "self.holds = reason",
        case(flow.test_reading_goes_on_when_the_last_of_all_reasons_is_gone, 0),
    ),
    "a server that is away is made a leader": Bug(
        rebalance,
        "{one.server_id for one in staying if not one.away and not one.resting}",
        "{one.server_id for one in staying if not one.resting}",
        rebalances.test_a_server_that_is_away_is_made_the_leader_of_nothing,
    ),
    "times of the day count microseconds": Bug(
        model_types,
        "default = 0 if kind is Time else 6",
        "default = 6",
        case(
            types.test_a_type_whose_document_says_no_more_is_what_the_standard_says,
            "TIME_WITHOUT_TIME_ZONE",
            model_types.Time(0),
        ),
    ),
    "who catches up only listens": Bug(
        coordinator_view,
        "        self._store.read()\n        return self.refresh()",
        "        return self.refresh()",
        terms.test_who_catches_up_asks_the_store_for_what_nobody_told_it,
    ),
    "rows of exactly the limit are refused": Bug(
        bucket_lookup,
        "size > self.answer_bytes_max",
        "size >= self.answer_bytes_max",
        lookup_limits.test_as_many_keys_and_bytes_as_the_limits_say_are_allowed_and_no_more,
    ),
    "a lane whose connection broke is not dialled again": Bug(
        fast_lane,
        "pass  # the program is exiting, and its threads take no new work\n        finally:\n"
        "            self._dialling = False",
        "pass  # the program is exiting, and its threads take no new work\n        finally:\n            pass",
        lanes.test_a_lane_whose_connection_broke_is_dialled_again_every_time,
    ),
    "a server that refuses connections is dialled for every batch": Bug(
        fast_lane,
        "            self._dial_again_at = self._clock.monotonic() + DIAL_PAUSE_S\n            return",
        "            return",
        lanes.test_a_server_that_refuses_connections_is_not_dialled_for_every_batch,
    ),
    "a tail asks the server of before for ever": Bug(
        tail,
        "if not isinstance(error, MISPLACED):\n            return\n        try:\n            await self._cluster",
        "if isinstance(error, MISPLACED):\n            return\n        try:\n            await self._cluster",
        reading.test_a_tail_asks_where_a_bucket_went_when_its_server_says_it_moved,
    ),
    "the time of a tail begins anew with every batch": Bug(
        aio_tail,
        "if self._timeout is not None and self._deadline is None:",
        "if self._timeout is not None:",
        case(patience.test_a_tail_ends_when_its_patience_does, {"timeout": 3.5}, 4, 3.5),
    ),
    "an end that came to a frozen host is never seen": Bug(
        memory_transport,
        "if self._in.arrived or self._in.ended:",
        "if self._in.arrived:",
        case(memory_network.test_what_came_while_a_host_was_frozen_is_there_when_it_wakes, "alone"),
    ),
    "nobody looks for answers again after a pause": Bug(
        fast_lane,
        "                    self._looking = False\n                    return",
        "                    return",
        lanes.test_answers_are_taken_without_a_flush_after_however_long_a_pause,
    ),
    "a table that is up to date was never tiered": Bug(
        lake_status,
        "if lag_ms is not None:",
        "if lag_ms:",
        case(lake_behind.test_a_table_tells_how_far_its_lake_is_behind, 12, None, "0 rows and 0.0 s behind"),
    ),
    "a bucket that a server leaves out is left out": Bug(
        offsets,
        "if len(found) < len(members):",
        "if not found:",
        case(left_out.test_a_bucket_that_is_left_out_of_an_answer_is_an_error, "offsets", 2),
    ),
    "every append waits for all copies": Bug(
        write_call,
        "self._acks = options.acks",
        "self._acks = -1",
        case(writing.test_a_writer_asks_for_the_acknowledgement_that_was_chosen, "append", 1),
    ),
    "a decision forgets a sink that is used anew": Bug(
        sink_commands,
        "[catalog.unchanged(keys.sink(row.name)) for row in forgotten]",
        "[]",
        lambda: races.test_a_sink_that_was_dropped_and_used_anew_is_not_forgotten(races.Race()),
    ),
    "the later of two floors holds": Bug(
        sink_commands,
        "[Exists(keys.table(table_id)), catalog.unchanged(key)]",
        "[Exists(keys.table(table_id))]",
        lambda: races.test_the_higher_of_two_floors_holds(races.Race()),
    ),
    "an older version decides again": Bug(
        sink_commands,
        "row.epoch != proposal.epoch",
        "row.epoch < proposal.epoch",
        sinks.test_a_decision_of_an_older_version_decides_nothing_even_with_stages_of_the_newest,
    ),
    "a log table in the lake is emptied": Bug(
        sink_commands,
        "if in_lake and not table.schema.primary_key:",
        "if in_lake and table.schema.primary_key:",
        sinks.test_a_log_table_in_the_lake_is_not_overwritten_there,
    ),
    "of two alterations at once one is lost": Bug(
        alter,
        "[catalog.unchanged(key)]",
        "[]",
        coordinating.test_two_alterations_at_once_both_happen,
    ),
    "an index is bent": Bug(
        alter,
        "own.get(name, value) != value",
        "name in own",
        key_tables.test_an_index_can_be_added_and_dropped_but_not_bent,
    ),
    "one partition too many": Bug(
        partitions,
        "if count >= count_max:",
        "if count > count_max:",
        coordinating.test_the_limit_of_partitions_holds_against_others,
    ),
    "the default of deletes is not the engine's": Bug(
        tables,
        "delete_behavior(description.properties)",
        "delete_behavior({})",
        key_tables.test_an_engine_that_keeps_no_deletes_says_so,
    ),
    "an empty round makes nothing fresher": Bug(
        lake,
        "Stored(replace(before, fresh_ms=record.fresh_ms))",
        "Stored(before)",
        lake_records.test_an_empty_round_writes_nothing,
    ),
    "files are merged across another engine's": Bug(
        compaction_plan,
        "reached = max(reached, file.last_offset)",
        "reached = file.last_offset",
        compaction.test_files_are_not_merged_across_another_engine_s_file_that_overlaps_them,
    ),
    "a number loses its sign": Bug(
        predicate_text,
        "return found.copy_negate() if sign < 0 else found",
        "return found",
        case(texts.test_text_means_what_sql_means, "a > -2.5", texts.col("a") > texts.Decimal("-2.5")),
    ),
    "what is read anew counts as synced": Bug(
        stage_journal,
        "        self.durable = 0\n        self._mirrored",
        "        self.durable = getattr(self, 'durable', 0)\n        self._mirrored",
        journals.test_who_begins_again_syncs_again,
    ),
    "a server that died between two calls is let in": Bug(
        pull_sessions,
        "session.waiting is not None or self._clock.monotonic() < session.answered_at + BETWEEN_CALLS_S",
        "True",
        pulls.test_a_server_that_does_not_call_again_after_an_answer_asks_no_more,
    ),
    "who leads no more does not say in which epoch": Bug(
        pull_sessions,
        "epoch = -1 if replica is None else replica.epoch_known\n        for",
        "epoch = -1\n        for",
        pulls.test_who_leads_no_more_says_so_at_once_with_the_epoch_that_ended_it,
    ),
    "rows left over are those of every bucket": Bug(
        round_parts,
        " - sum(part.width for part in chosen)",
        "",
        parts.test_transactions_are_never_split_over_rounds,
    ),
    "only the last server's offsets count": Bug(
        offsets,
        "found |= _read",
        "found = _read",
        reading.test_buckets_that_moved_apart_while_their_offsets_were_asked_are_asked_of_both_servers,
    ),
    "a run of entries has gaps": Bug(
        entry_run,
        '& (fields["base_offset"] - first.base_offset == number * (first.last_offset_delta + 1))',
        "",
        case(alike_runs.test_a_sound_entry_that_does_not_continue_the_one_before_ends_a_run, "base_offset"),
    ),
    "groups that touch are left out": Bug(
        groups,
        "end <= group.start_offset",
        "end < group.start_offset",
        log_groups.test_an_overwriting_group_starts_a_segment_and_what_was_before_goes,
    ),
    "a segment's first time moves": Bug(
        chain_writer,
        "if segment.empty:\n        segment.first_timestamp_ms",
        "if True:\n        segment.first_timestamp_ms",
        retention.test_the_active_segment_is_sealed_once_its_oldest_batch_is_too_old,
    ),
    "the newest decision is applied twice": Bug(
        publishing,
        "commit.origin.number <= tablet",
        "commit.origin.number < tablet",
        case(tablet_groups.test_a_decision_is_applied_once_however_often_it_comes, "log"),
    ),
    "a damaged stage stays where it is": Bug(
        stages,
        'stage.state not in ("sealed", "damaged")',
        'stage.state != "sealed"',
        case(skipping.test_a_stage_that_an_opening_found_damaged_is_skipped_and_kept_aside, "log"),
    ),
    "entries that are replaced count twice": Bug(
        maps, "count += key not in shard", "count += 1", sharing_map.test_numbers_are_keys_too
    ),
    "other names of types need capitals": Bug(
        type_text,
        "_ALIASES.get(self.token.upper(), self.token.upper())",
        "_ALIASES.get(self.token, self.token.upper())",
        case(types.test_case_does_not_matter, "INTEGER", str.lower),
    ),
    "unchanged metadata is packed anew": Bug(
        moved,
        "if after == before:",
        "if after == before and not packed:",
        case(
            table_metadata.test_what_names_no_file_of_the_warehouse_stays_to_the_byte,
            table_metadata.packed,
            {"location": "/elsewhere/t"},
        ),
    ),
    "Avro files must name their codec": Bug(
        avro,
        'codec = header.get(_CODEC, b"null").decode()',
        "codec = header[_CODEC].decode()",
        case(avro_file.test_blocks_of_other_writers_are_read_one_after_the_other, None, bytes),
    ),
    "a column that a batch lacks is its last": Bug(
        record_filter, " - {-1}", "", filters.test_a_column_younger_than_the_batch_is_null
    ),
    "a bound that does not fit is stored": Bug(
        record_statistics,
        " or not _fits(found[1], slot)",
        "",
        statistics.test_bounds_that_would_mislead_are_left_out,
    ),
    "who waits for memory is overtaken": Bug(
        budget, "self._first() is not None or ", "", flow.test_the_first_in_line_is_not_overtaken
    ),
    "failed logins are never forgotten": Bug(
        login_delays,
        "count if now - at < FORGET_S else 0",
        "count",
        login.test_an_address_has_a_few_failures_of_many_users_free,
    ),
    "a flood of logins is silent": Bug(
        login_delays,
        "whole & (whole - 1) == 0 or ",
        "",
        login.test_the_first_failures_of_every_user_are_logged_and_of_a_flood_each_that_doubles_it,
    ),
    "a closed owner starts tasks": Bug(
        owned,
        "if self._closed:\n            work.close()",
        "if False:\n            work.close()",
        tasks.test_a_closed_owner_takes_no_task,
    ),
    "the columns of a filter are not read": Bug(
        streaming,
        "needed = frozenset(self._full.names)",
        "needed = frozenset(given)",
        case(streamed_rows.test_a_filter_is_computed_from_columns_that_nobody_named, ["a"]),
    ),
    "an entry whose copies are in another order is moving": Bug(
        bucket_entry,
        "return set(self.servers) != set(self.wanted)",
        "return self.servers != self.wanted",
        bucket_entries.test_a_bucket_on_the_move_or_with_fewer_copies_in_sync_or_with_losses_lacks_something,
    ),
    "NULL is a value where it is shouted": Bug(
        predicate_text,
        'self.token.lower() == "null"',
        'self.token == "null"',
        case(texts.test_text_that_makes_no_sense_is_refused_with_the_place, "price = NULL", 8, "is null"),
    ),
    "a round that was given up ended well": Bug(
        tiering,
        'LastRound(now_ms, error or "it was given up")',
        "LastRound(now_ms, error)",
        case(
            rounds.test_a_failed_round_pauses_its_table_longer_and_longer_but_not_for_ever,
            None,
            "it was given up",
        ),
    ),
    "only the first stage of a proposal is checked": Bug(
        sink_commands,
        "for one in proposal.stages:\n        if len(",
        "for one in proposal.stages[:1]:\n        if len(",
        case(
            sinks.test_a_proposal_that_makes_no_sense_is_refused,
            {"stages": [sinks.listed(2, 1, 0), sinks.listed(1, 1)]},
        ),
    ),
    "a recovery forgets what the table promises": Bug(
        losses,
        "elections.recover(entry, catalog.registrations, found, promise)",
        'elections.recover(entry, catalog.registrations, found, promise._replace(durability="os"))',
        operations.test_under_group_a_power_loss_is_no_loss,
    ),
    "a bucket made while no server lives has no leader": Bug(
        new_copies,
        " or {one.server_id for one in servers}\n",
        "\n",
        copies.test_where_no_server_seems_to_live_every_copy_is_in_sync,
    ),
    "a bucket that fails waits four times as long each time": Bug(
        decision_rollout,
        "            if known is not None and known.again_at > now:\n                return\n",
        "",
        rollouts.test_a_bucket_that_fails_is_asked_again_after_twice_as_long_each_time_and_within_a_second,
    ),
    "stages are read on the loop": Bug(
        pull_answers,
        "        if leading.journal.end > self.question.journal:\n            return True\n",
        "",
        case(answers.test_what_takes_long_to_read_is_not_read_on_the_loop, 4, 7, 0, True),
    ),
    "only the first column that must not be NULL is checked": Bug(
        record_columns,
        "for node, name in self.required:",
        "for node, name in self.required[:1]:",
        case(batch_check.test_every_column_that_must_not_be_null_is_checked, "b"),
    ),
    "every question to a server makes a new link": Bug(
        server_links,
        "self._links[server_id] = link",
        "pass",
        links.test_a_server_is_asked_on_one_link_which_follows_it_to_a_new_address,
    ),
    "the newest rows are looked for from the newest on": Bug(
        scan,
        "_instant(_times(newest)[0])",
        "_instant(_times(newest)[-1])",
        newest_rows.test_of_a_bucket_that_has_many_matches_those_that_are_newer_than_others_are_read_too,
    ),
    "entries are read past the end": Bug(
        entry_run,
        "(len(source) - start) // size",
        "len(source) // size",
        alike_runs.test_no_octet_of_an_entry_can_change_unnoticed_within_a_run,
    ),
    "a follower forgets that a group overwrote the rest": Bug(
        pulled,
        "Origin(self.number, self.sink, self.sink_epoch, self.overwrite)",
        "Origin(self.number, self.sink, self.sink_epoch, False)",
        case(tablet_copies.test_a_follower_knows_which_group_overwrote_the_rest, "log"),
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what a bug leaves undone
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen_and_the_code_without_it_is_sound(name: str) -> None:
    bug = BUGS[name]
    with planted(bug.where, bug.old, bug.new), pytest.raises((Exception, pytest.fail.Exception)):
        bug.seen_by()
    bug.seen_by()
