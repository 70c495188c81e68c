-- One row for each name. All numbers count microseconds from `at`; docs/internals/sql.md has the columns.
create table if not exists :names (
  key bytea primary key,
  version bigint not null,
  at bigint not null,
  last bigint not null,
  idle_after bigint,
  first_token bigint,
  last_token bigint,
  ends bigint,
  record bytea
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- One row for each waiter.
create table if not exists :queue (
  key bytea not null,
  place bigint not null,
  owner bytea not null,
  alive_until bigint not null,
  waiter bytea not null,
  primary key (key, place),
  unique (key, owner)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- One row for each cell.
create table if not exists :cells (
  key bytea primary key,
  version bigint not null,
  changed_at bigint not null,
  expires bigint not null,
  bytes bytea not null
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- The format of the tables above.
create table if not exists :format (
  format integer primary key
);
insert into :format (format) values (1) on conflict do nothing;
