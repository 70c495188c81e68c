-- One row for each name. All numbers count microseconds from `at`; docs/internals/sql.md has the columns.
create table if not exists :names (
  name_key varbinary(512) not null primary key,
  version bigint not null,
  at bigint not null,
  last bigint not null,
  idle_after bigint,
  first_token bigint,
  last_token bigint,
  ends bigint,
  record mediumblob
) engine = InnoDB;

-- One row for each waiter.
create table if not exists :queue (
  name_key varbinary(512) not null,
  place bigint not null,
  owner binary(16) not null,
  alive_until bigint not null,
  waiter mediumblob not null,
  primary key (name_key, place),
  unique key (name_key, owner)
) engine = InnoDB;

-- One row for each cell.
create table if not exists :cells (
  name_key varbinary(512) not null primary key,
  version bigint not null,
  changed_at bigint not null,
  expires bigint not null,
  bytes mediumblob not null
) engine = InnoDB;

-- The format of the tables above.
create table if not exists :format (
  format int not null primary key
) engine = InnoDB;
insert into :format (format) values (1) on duplicate key update format = 1;
