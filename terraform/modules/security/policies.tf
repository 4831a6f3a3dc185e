# Statements by what they are for. The table of terraform/README.md says why each action is in, and a test holds both together.
locals {
  arn  = "arn:${var.context.partition}"
  here = "${var.context.region}:${var.context.account_id}"

  warehouse = "${var.lake_bucket_arn}/${var.warehouse_prefix}"
  place     = "${var.artifacts_bucket_arn}/${var.artifacts_prefix}"

  catalog = concat(
    ["${local.arn}:glue:${local.here}:catalog"],
    [for name in var.databases : "${local.arn}:glue:${local.here}:database/${name}"],
    [for name in var.databases : "${local.arn}:glue:${local.here}:table/${name}/*"],
  )

  read_tables = [
    {
      Sid       = "ListTheWarehouse"
      Effect    = "Allow"
      Action    = ["s3:ListBucket"]
      Resource  = [var.lake_bucket_arn]
      Condition = { StringLike = { "s3:prefix" = [var.warehouse_prefix, "${var.warehouse_prefix}/*"] } }
    },
    {
      Sid      = "WhereTheLakeIs"
      Effect   = "Allow"
      Action   = ["s3:GetBucketLocation"]
      Resource = [var.lake_bucket_arn]
    },
    {
      Sid      = "ReadTables"
      Effect   = "Allow"
      Action   = ["s3:GetObject"]
      Resource = ["${local.warehouse}/*"]
    },
    {
      Sid      = "ReadTheCatalog"
      Effect   = "Allow"
      Action   = ["glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables"]
      Resource = local.catalog
    },
  ]

  write_tables = [
    {
      Sid      = "WriteTables"
      Effect   = "Allow"
      Action   = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
      Resource = ["${local.warehouse}/*"]
    },
    {
      Sid      = "CommitToTheCatalog"
      Effect   = "Allow"
      Action   = ["glue:CreateTable", "glue:UpdateTable"]
      Resource = local.catalog
    },
  ]

  run_code = [
    {
      Sid       = "ListThePlace"
      Effect    = "Allow"
      Action    = ["s3:ListBucket"]
      Resource  = [var.artifacts_bucket_arn]
      Condition = { StringLike = { "s3:prefix" = ["${var.artifacts_prefix}", "${var.artifacts_prefix}/*"] } }
    },
    {
      Sid      = "ReadTheCode"
      Effect   = "Allow"
      Action   = ["s3:GetObject"]
      Resource = ["${local.place}/*"]
    },
    {
      Sid      = "LeaveOutcomesAndLogs"
      Effect   = "Allow"
      Action   = ["s3:PutObject"]
      Resource = ["${local.place}/outcomes/*", "${local.place}/logs/*"]
    },
    {
      # It has no finer resource than the log groups of the region.
      Sid      = "FindTheLogGroup"
      Effect   = "Allow"
      Action   = ["logs:DescribeLogGroups"]
      Resource = ["${local.arn}:logs:${local.here}:log-group:*"]
    },
  ]

  use_key = [{
    Sid      = "UseTheKey"
    Effect   = "Allow"
    Action   = ["kms:Decrypt", "kms:GenerateDataKey", "kms:DescribeKey"]
    Resource = [local.kms_key]
  }]

  log_driver = {
    for name, group in var.log_groups : name => [{
      Sid      = "LogTheDriver"
      Effect   = "Allow"
      Action   = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
      Resource = [group, "${group}:*"]
    }]
  }

  read_secrets = {
    for reader, arns in local.readable : reader => [for one in [arns] : {
      Sid      = "ReadItsSecrets"
      Effect   = "Allow"
      Action   = ["secretsmanager:GetSecretValue"]
      Resource = one
    } if length(one) > 0]
  }

  read_landing = [for one in [var.landing] : {
    Sid      = "ReadWhatLands"
    Effect   = "Allow"
    Action   = ["s3:GetObject", "s3:ListBucket"]
    Resource = flatten([for bucket, prefix in one : ["${local.arn}:s3:::${bucket}", "${local.arn}:s3:::${bucket}/${prefix}*"]])
  } if length(one) > 0]

  # A name, not an ARN: the cluster's id, which AWS chooses, is the part that follows.
  msk = "${local.arn}:kafka:${local.here}"
  read_kafka = [for one in var.msk == null ? [] : [var.msk] : [
    {
      Sid      = "ReachTheBrokers"
      Effect   = "Allow"
      Action   = ["kafka-cluster:Connect"]
      Resource = ["${local.msk}:cluster/${one.cluster_name}/*"]
    },
    {
      Sid      = "ReadTopics"
      Effect   = "Allow"
      Action   = ["kafka-cluster:DescribeTopic", "kafka-cluster:ReadData"]
      Resource = [for topic in one.topics : "${local.msk}:topic/${one.cluster_name}/*/${topic}"]
    },
    {
      # Spark names its consumer groups so.
      Sid      = "AsSparkGroups"
      Effect   = "Allow"
      Action   = ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"]
      Resource = ["${local.msk}:group/${one.cluster_name}/*/spark-kafka-source-*"]
    },
  ]]

  stream = concat(
    local.read_tables, local.write_tables, local.run_code, local.use_key,
    local.log_driver["stream"], local.read_secrets["stream"], local.read_landing, flatten(local.read_kafka),
  )

  backfill = concat(
    local.read_tables, local.write_tables, local.run_code, local.use_key,
    local.log_driver["backfill"], local.read_secrets["backfill"],
    [{
      Sid      = "DropTables"
      Effect   = "Allow"
      Action   = ["glue:DeleteTable"]
      Resource = local.catalog
    }],
  )

  analyst = concat(
    local.read_tables,
    [
      {
        Sid      = "ReadWithTheKey"
        Effect   = "Allow"
        Action   = ["kms:Decrypt"]
        Resource = [local.kms_key]
      },
      {
        Sid      = "NotTheCheckpoints"
        Effect   = "Deny"
        Action   = ["s3:GetObject"]
        Resource = ["${local.warehouse}/_checkpoints/*"]
      },
    ],
  )
}
